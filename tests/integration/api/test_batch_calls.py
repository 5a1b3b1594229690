"""Batches over the API: one call begins a batch, the server processes its items, other calls read and stop it."""

import pytest

from jobs.errors import KeyTaken
from jobs.models import Batch, WorkerJob
from jobs.services import batches
from liveness.models import ServerEvent
from liveness.services import tokens
from tests.support.executions import step
from tests.support.http import Caller

pytestmark = pytest.mark.django_db


@pytest.fixture
def caller(api):
    return api("operator")


@pytest.fixture
def jobs(submit):
    return lambda number, **job: [submit(**{"tags": ["gpu"], "unmatched": "wait", **job})["id"] for _ in range(number)]


def accepted(answer, status=201):
    assert answer.status_code == status, answer.json()
    return answer.json()


def refused(answer, status=400):
    assert answer.status_code == status, answer.json()
    return answer.json()


def states(ids):
    return [WorkerJob.objects.get(pk=id).state for id in ids]


def test_what_is_done_to_some_has_an_outcome_for_each(caller, jobs):
    ended, waiting = jobs(1), jobs(2)
    caller.post(f"/jobs/{ended[0]}/cancel", {})
    begun = accepted(caller.post("/batches", {"operation": "cancel_job", "ids": ended + waiting, "note": "wrong data"}))
    assert states(waiting) == ["CANCELLED", "CANCELLED"]
    batch = caller.get(f"/batches/{begun['id']}").json()
    assert (batch["state"], batch["total"], batch["done"], batch["refused"], batch["pending"]) == (
        "COMPLETED",
        3,
        2,
        1,
        0,
    )
    assert [(item["subject"], item["outcome"]) for item in batch["items"]] == [
        (ended[0], "REFUSED"), (waiting[0], "DONE"), (waiting[1], "DONE"),
    ]  # fmt: skip
    assert batch["refusals"] == [{"reason": batch["items"][0]["reason"], "items": 1}]
    assert (batch["operation"], batch["subject"], batch["note"], batch["actor"]) == (
        "cancel_job", "job", "wrong data", "operator:a operator",
    )  # fmt: skip


def test_a_filter_takes_all_that_match_now_and_nothing_that_comes_after(caller, jobs, submit):
    matching, other = jobs(30), submit(tags=["cpu"], unmatched="wait")["id"]
    wanted = {"operation": "cancel_job", "filter": {"state": "PENDING", "tag": "gpu"}, "note": "n"}
    begun = accepted(caller.post("/batches", wanted))
    later = jobs(1)
    assert (begun["total"], begun["chosen"], begun["query"]) == (30, "state PENDING, tag gpu", "state=PENDING&tag=gpu")
    assert begun["state"] == "RUNNING", "the call does a few; the executors do the rest"
    batches.run_batches()
    assert set(states(matching)) == {"CANCELLED"}
    assert states([other, *later]) == ["PENDING", "PENDING"]
    assert caller.get(f"/batches/{begun['id']}").json()["state"] == "COMPLETED"


def test_executions_and_servers_are_acted_on_too_by_the_filters_of_their_lists(caller, begin, worker):
    runs = [begin(step("a"), name="nightly") for _ in range(2)]
    apart = begin(step("a"), name="hourly")
    accepted(caller.post("/batches", {"operation": "cancel_execution", "filter": {"name": "nightly"}, "note": "n"}))
    assert [run.state for run in (*runs, apart)] == ["CANCELLED", "CANCELLED", "RUNNING"]
    again = accepted(
        caller.post("/batches", {"operation": "rerun_execution", "ids": [run.id for run in runs], "note": "n"})
    )
    items = caller.get(f"/batches/{again['id']}").json()["items"]
    assert all(item["result"] not in (None, item["subject"]) for item in items)
    one, two = worker(tags=["a"]), worker(tags=["b"])
    wanted = {"operation": "drain_server", "filter": {"tag": "a"}, "note": "n", "deadline_seconds": 600}
    accepted(caller.post("/batches", wanted))
    assert [bool(caller.get(f"/servers/{server.id}").json()["drain"]) for server in (one, two)] == [True, False]
    wanted = {"operation": "cordon_server", "ids": [two.id], "note": "n", "duration_seconds": 600}
    accepted(caller.post("/batches", wanted))
    assert caller.get(f"/servers/{two.id}").json()["cordon_until"]


def test_the_same_key_begins_one_batch_and_another_with_it_is_refused(caller, jobs):
    ids = jobs(2)
    key = {"Idempotency-Key": "mine"}
    wanted = {"operation": "cancel_job", "filter": {"state": "PENDING"}, "note": "n"}
    first = accepted(caller.post("/batches", wanted, **key))
    second = accepted(caller.post("/batches", wanted, **key), 200)
    assert first["id"] == second["id"]
    other = refused(caller.post("/batches", {**wanted, "note": "another"}, **key), 409)
    assert (other["code"], other["batch"]) == ("key_conflict", first["id"])
    by_id = refused(caller.post("/batches", {"operation": "cancel_job", "ids": ids, "note": "n"}, **key), 409)
    assert by_id["code"] == "key_conflict"
    assert Batch.objects.count() == 1


def test_the_key_of_one_caller_is_not_in_the_way_of_another(caller, jobs):
    ids = jobs(1)
    wanted = {"operation": "cancel_job", "ids": ids, "note": "n"}
    first = accepted(caller.post("/batches", wanted, **{"Idempotency-Key": "k"}))
    another = Caller(tokens.create_token("another", "operator"))
    assert accepted(another.post("/batches", wanted, **{"Idempotency-Key": "k"}))["id"] != first["id"]


def test_a_batch_that_is_begun_twice_resubmits_each_job_once(caller, jobs):
    ids = jobs(2)
    accepted(caller.post("/batches", {"operation": "cancel_job", "ids": ids, "note": "n"}))
    wanted = {"operation": "resubmit_job", "ids": ids, "note": "n"}
    accepted(caller.post("/batches", wanted))
    again = accepted(caller.post("/batches", wanted))
    assert (again["done"], again["refused"]) == (0, 2)
    forced = accepted(caller.post("/batches", {**wanted, "force": True, "keep_checkpoint": False}))
    assert (forced["done"], forced["refused"]) == (2, 0)
    assert WorkerJob.objects.filter(resubmission_of__in=ids).count() == 4


def test_a_batch_is_stopped_and_leaves_the_rest_as_it_is(caller, jobs):
    ids = jobs(30)
    begun = accepted(caller.post("/batches", {"operation": "fail_job", "ids": ids, "note": "n", "reason": "no"}))
    stopped = accepted(caller.post(f"/batches/{begun['id']}/stop", {"note": "enough"}), 200)
    assert (stopped["state"], stopped["stopped_by"]) == ("STOPPED", "operator:a operator")
    batches.run_batches()
    assert 0 < states(ids).count("PENDING") < 30
    assert refused(caller.post(f"/batches/{begun['id']}/stop", {}), 409)["code"] == "batch_ended"
    event = ServerEvent.objects.get(action="stop_batch")
    assert (event.actor, event.note) == ("operator:a operator", "enough")


def test_lists_of_batches_are_filtered_and_their_items_are_paged(caller, jobs):
    ids = jobs(5)
    first = accepted(caller.post("/batches", {"operation": "cancel_job", "ids": ids, "note": "n"}))
    second = accepted(caller.post("/batches", {"operation": "resubmit_job", "ids": ids[:1], "note": "n"}))
    listed = caller.get("/batches").json()
    assert [item["id"] for item in listed["items"]] == [second["id"], first["id"]]
    assert [item["id"] for item in caller.get("/batches?operation=cancel_job").json()["items"]] == [first["id"]]
    assert caller.get("/batches?state=RUNNING").json()["items"] == []
    page = caller.get("/batches?limit=1").json()
    assert caller.get(f"/batches?limit=1&cursor={page['next']}").json()["items"][0]["id"] == first["id"]
    seen, cursor = [], "0"
    while cursor is not None:
        page = caller.get(f"/batches/{first['id']}?limit=2&cursor={cursor}&outcome=DONE").json()
        seen += [item["subject"] for item in page["items"]]
        cursor = page["next"]
    assert seen == ids


@pytest.mark.parametrize(
    ("wrong", "where"),
    [
        ({"operation": "explode"}, "operation"),
        ({"ids": None}, "ids"),
        ({"filter": {"state": "PENDING"}}, "ids"),
        ({"ids": []}, "ids"),
        ({"ids": ["01a1fe5d-59c7-77d5-9069-25caf686f877"]}, "ids"),
        ({"note": ""}, "note"),
        ({"deadline_seconds": 5}, "deadline_seconds"),
        ({"force": True}, "force"),
        ({"ids": ..., "filter": {"state": "NOWHERE"}}, "filter"),
        ({"ids": ..., "filter": {"colour": "red"}}, "filter"),
        ({"ids": ..., "filter": {"limit": 5}}, "filter"),
        ({"ids": ..., "filter": "all"}, "filter"),
        ({"ids": ..., "filter": {"state": "COMPLETED"}}, "filter"),
        ({"ids": ...}, "ids"),
    ],
)
def test_what_makes_no_sense_is_refused_and_nothing_is_done(caller, jobs, wrong, where):
    ids = jobs(1)
    body = {"operation": "cancel_job", "ids": ids, "note": "n"} | wrong
    body = {name: value for name, value in body.items() if value is not ...}
    assert where in refused(caller.post("/batches", body))["errors"]
    assert states(ids) == ["PENDING"]
    assert not Batch.objects.exists()


def test_clients_and_workers_begin_none_and_a_viewer_may_look(caller, api, jobs):
    wanted = {"operation": "cancel_job", "ids": jobs(1), "note": "n"}
    for role in ("client", "worker", "viewer"):
        assert api(role).post("/batches", wanted).status_code == 403
    begun = accepted(caller.post("/batches", wanted))
    viewer = api("viewer")
    assert viewer.get(f"/batches/{begun['id']}").status_code == 200
    assert viewer.post(f"/batches/{begun['id']}/stop", {}).status_code == 403
    assert api("client").get("/batches").status_code == 403
    assert caller.get("/batches/01a1fe5d-59c7-77d5-9069-25caf686f877").status_code == 404


def test_in_a_namespace_a_batch_reaches_what_is_of_it_alone(caller, jobs):
    own = Caller(tokens.create_token("team client", "client", namespace="team"))
    mine = own.post("/jobs", {"action": {"type": "script", "command": "true"}, "unmatched": "wait"}).json()["id"]
    others = jobs(1)
    team = Caller(tokens.create_token("team operator", "operator", namespace="team"))
    wanted = {"operation": "cancel_job", "filter": {"state": "PENDING"}, "note": "n"}
    begun = accepted(team.post("/batches", wanted))
    assert begun["total"] == 1
    assert states([mine, *others]) == ["CANCELLED", "PENDING"]
    foreign = refused(team.post("/batches", {"operation": "cancel_job", "ids": others, "note": "n"}))
    assert "ids" in foreign["errors"]
    of_all = accepted(caller.post("/batches", wanted))
    assert team.get(f"/batches/{of_all['id']}").status_code == 404
    assert [item["id"] for item in team.get("/batches").json()["items"]] == [begun["id"]]
    assert refused(team.post("/batches?namespace=default", wanted), 403)["code"] == "wrong_namespace"


def test_a_token_of_the_same_name_in_another_namespace_sees_and_stops_nothing():
    """Names of tokens can be chosen freely."""
    own = Caller(tokens.create_token("red client", "client", namespace="red"))
    for _ in range(30):
        own.post("/jobs", {"action": {"type": "script", "command": "true"}, "unmatched": "wait"})
    red, blue, watcher = (
        Caller(tokens.create_token("deploy", role, namespace=namespace))
        for role, namespace in (("operator", "red"), ("operator", "blue"), ("viewer", "blue"))
    )
    key = {"Idempotency-Key": "k"}
    wanted = {"operation": "cancel_job", "filter": {"state": "PENDING"}, "note": "n"}
    begun = accepted(red.post("/batches", wanted, **key))
    for other in (blue, watcher):
        assert other.get("/batches").json()["items"] == []
        assert other.get(f"/batches/{begun['id']}").status_code == 404
    assert blue.post(f"/batches/{begun['id']}/stop", {}).status_code == 404
    assert "filter" in refused(blue.post("/batches", wanted, **key))["errors"], "its own, and there is nothing"
    assert [item["id"] for item in red.get("/batches").json()["items"]] == [begun["id"]]


def test_a_key_that_began_a_batch_in_another_namespace_is_refused(jobs, django_user_model):
    jobs(1)
    person = Caller(None)
    person.client.force_login(django_user_model.objects.create_superuser("boss"))
    wanted = {"operation": "cancel_job", "filter": {"state": "PENDING"}, "note": "n"}
    key = {"Idempotency-Key": "k"}
    accepted(person.post("/batches?namespace=default", wanted, **key))
    assert refused(person.post("/batches?namespace=red", wanted, **key), 409)["code"] == "key_conflict"


def test_of_two_calls_at_once_with_one_key_that_for_others_is_refused(jobs):
    """Two calls at once: neither found the batch of the other when it looked."""
    one, two = ([WorkerJob.objects.get(pk=id).pk] for id in jobs(2))
    plan = batches.BatchPlan("cancel_job", "operator:x", "n", {}, chosen="chosen by id", key="k")
    begun, is_new = batches.submit_batch(plan, one, are_named=True)
    assert is_new
    with pytest.raises(KeyTaken):
        batches.submit_batch(plan, two, are_named=True)
    assert batches.submit_batch(plan, one, are_named=True) == (begun, False)
