"""Placement: the servers that may take a waiting job, and the filters that exclude the others."""

import itertools
import re
import uuid

import pytest
from django.db import connection

from controlplane.core.sql_book import compose_statement
from jobs.models import Attempt, WorkerJob
from jobs.selectors.placement import job_placement
from liveness.models import Instance, Server
from tests.support.http import Worker
from tests.support.queries import CapturedQueries

SCRIPT = {"type": "script", "command": "true"}


@pytest.fixture
def ask(submit):
    """Return the placement of a job: `ask(job)`."""

    def ask(job, caller=None):
        answer = (caller or submit.client).get(f"/jobs/{job['id']}/placement")
        assert answer.status_code == 200, answer.json()
        return answer.json()

    return ask


def as_ruled_out(ruled_out):
    return [(row["server"]["name"], row["filter"], row["detail"]) for row in ruled_out]


def drained(server):
    Server.objects.filter(pk=server).update(
        drain_deadline="2100-01-01T00:00:00Z", drain_until_observed=1e9, cordoned_by="operator:o", cordon_reason="x"
    )


def in_maintenance(server):
    Instance.objects.update(maintenance_since="2026-01-01T00:00:00Z", maintenance_by="operator:o")


def refused(server):
    WorkerJob.objects.update(refused_by=[server])


# Each filter with the options of a worker, a change to it, and the detail of the filter.
RULED_OUT = {
    "state": (
        {},
        lambda id: Server.objects.filter(pk=id).update(state="MAINTENANCE"),
        "it is MAINTENANCE, not RUNNING",
    ),
    "cordon": (
        {},
        lambda id: Server.objects.filter(pk=id).update(cordoned_by="operator:o", cordon_reason="disk"),
        "cordoned by operator:o: disk",
    ),
    "cordon, drained": ({}, drained, "it is being drained by operator:o"),
    "maintenance": ({}, in_maintenance, "the control plane is in maintenance"),
    "tags": ({"tags": ["script", "x"]}, None, "it lacks a, b"),
    "refused": ({}, refused, "it refused the job as not allowed"),
    "capacity": ({"max_concurrent": 0}, None, "0 of 0 in use"),
}


@pytest.mark.parametrize("case", RULED_OUT)
def test_a_worker_is_ruled_out_by_its_filter_and_gets_nothing(submit, ask, worker, case):
    fields, happens, detail = RULED_OUT[case]
    job = submit(tags=["b", "a"])
    one = worker(**{"tags": ["a", "b", "script"], **fields})
    if happens:
        happens(one.id)
    answer = ask(job)
    assert answer["eligible"] == []
    assert as_ruled_out(answer["ruled_out"]) == [("worker-1", case.partition(",")[0], detail)]
    claim = one.post(f"/servers/{one.id}/claims", {"limit": 1})
    assert claim.status_code == 409 or claim.json() == {"attempts": []}


@pytest.mark.parametrize(("after", "is_fresh"), [(29, True), (31, False)])
def test_a_stale_worker_is_ruled_out(submit, ask, worker, clock, after, is_fresh):
    job = submit()
    one = worker(config={"heartbeat_interval_seconds": 10, "timeout_seconds": 45})
    clock.advance(after)
    answer = ask(job)
    assert len(answer["eligible"]) == is_fresh
    assert one.post(f"/servers/{one.id}/claims", {"limit": 1}).status_code == (200 if is_fresh else 409)
    if not is_fresh:
        ((_, name, detail),) = as_ruled_out(answer["ruled_out"])
        assert (name, detail) == ("freshness", "its last heartbeat was 31 s ago: stale from 30 s on")


def test_a_worker_that_was_silent_during_an_outage_is_eligible_everywhere(submit, ask, worker, clock, api):
    job = submit()
    one = worker(config={"heartbeat_interval_seconds": 10, "timeout_seconds": 45})
    clock.step(3600)
    assert [row["server"]["id"] for row in ask(job)["eligible"]] == [one.id]
    assert api("viewer").get(f"/servers/{one.id}").json()["fresh"]
    assert submit(require_worker=True)["state"] == "PENDING"
    assert len(one.claim(limit=2)) == 2


# In the order of the filters, with the codes of a refused claim and of a submission that requires a worker.
OBSTACLES = {
    "state": ("server_not_running", "no_fresh_workers"),
    "freshness": ("heartbeat_stale", "no_fresh_workers"),
    "cordon": ("server_cordoned", "workers_cordoned"),
    "maintenance": ("maintenance", "workers_in_maintenance"),
}


@pytest.mark.parametrize(("first", "then"), list(itertools.combinations(OBSTACLES, 2)))
def test_claim_placement_and_submission_name_the_same_one_of_two_filters(submit, ask, api, clock, first, then):
    job = submit()
    one = Worker.register(api("worker"))
    one.beat(**{} if first == "state" else {"state": "RUNNING"})
    if "freshness" in (first, then):
        clock.advance(30)
    if "cordon" in (first, then):
        Server.objects.update(cordoned_by="operator:o", cordon_reason="disk")
    if "maintenance" in (first, then):
        in_maintenance(one.id)
    claim = one.post(f"/servers/{one.id}/claims", {"limit": 1})
    required = submit.client.post("/jobs", {"action": SCRIPT, "require_worker": True})
    assert (claim.status_code, claim.json()["code"]) == (409, OBSTACLES[first][0])
    assert [row["filter"] for row in ask(job)["ruled_out"]] == [first]
    assert (required.json()["code"], required.json()["filter"]) == (OBSTACLES[first][1], first)


def test_the_list_of_filters_has_the_order_in_which_they_are_asked():
    asked = compose_statement("liveness", "obstacle_to_work") + compose_statement("jobs", "obstacle_to_job")
    in_order = dict.fromkeys(re.findall(r"then '(\w+)'", asked))
    assert list(in_order) == re.findall(r"'(\w+)'", compose_statement("liveness", "filters"))


def test_a_server_of_another_type_is_ruled_out_by_it_first_of_all(submit, ask, api):
    job = submit()
    Worker.register(api("worker"), type="INDEXER", name="i", tags=[])
    assert as_ruled_out(ask(job)["ruled_out"]) == [("i", "type", "it is of type INDEXER, not WORKER")]


def test_the_first_filter_in_their_order_is_named(submit, ask, api, worker, clock):
    job = submit(tags=["x"])
    Worker.register(api("worker"), name="created")
    clock.advance(200)
    worker(name="full, without tags", max_concurrent=0)
    worker(name="full", max_concurrent=0, tags=["script", "x"])
    Worker.register(api("worker"), name="scheduler", type="SCHEDULER")
    filters = [row["filter"] for row in ask(job)["ruled_out"]]
    assert filters == ["type", "state", "tags", "capacity"]


def test_those_that_are_left_are_ranked_by_load(submit, ask, worker):
    loads = {"half": (2, 1), "idle": (1, 0), "tenth": (10, 1), "full": (1, 1)}
    workers = {name: worker(name=name, max_concurrent=capacity) for name, (capacity, _) in loads.items()}
    for name, (_, held) in loads.items():
        for number in range(held):
            submit()
            workers[name].hold(running=number % 2 == 0)
    answer = ask(submit())
    assert [(row["server"]["name"], row["load"], row["hint"]) for row in answer["eligible"]] == [
        ("idle", 0.0, "first"), ("tenth", 0.1, "later"), ("half", 0.5, "later"),
    ]  # fmt: skip
    assert as_ruled_out(answer["ruled_out"]) == [("full", "capacity", "1 of 1 in use")]
    assert answer["eligible"][0]["server"]["id"] == workers["idle"].id


def test_of_equals_each_is_hinted_at_it_first(submit, ask, worker):
    for name in ("a", "b"):
        worker(name=name)
    assert [row["hint"] for row in ask(submit())["eligible"]] == ["first", "first"]


def test_a_server_that_is_not_alive_is_not_there_and_without_any_both_are_empty(submit, ask, worker):
    worker().beat(state="ERROR")
    assert ask(submit()) == {"eligible": [], "ruled_out": [], "waiting_for": None}


def test_a_delayed_job_shows_until_when_it_waits(submit, ask, worker):
    worker()
    answer = ask(submit(available_at="2100-01-01T00:00:00Z"))
    assert answer["waiting_for"] == {"what": "available_at", "until": "2100-01-01T00:00:00Z"}
    assert len(answer["eligible"]) == 1


@pytest.mark.parametrize("state", ["CLAIMED", "RUNNING", "CANCELLED"])
def test_a_job_that_does_not_wait_has_no_placement(submit, worker, state):
    job = submit()
    if state == "CANCELLED":
        submit.client.post(f"/jobs/{job['id']}/cancel", {})
    else:
        worker().hold(running=state == "RUNNING")
    answer = submit.client.get(f"/jobs/{job['id']}/placement")
    assert (answer.status_code, answer.json()["code"], answer.json()["state"]) == (409, "job_not_waiting", state)


@pytest.mark.parametrize(("role", "status"), [("client", 404), ("viewer", 200), ("operator", 200), ("worker", 403)])
def test_a_placement_is_visible_to_callers_who_see_the_job(submit, api, role, status):
    path = f"/jobs/{submit()['id']}/placement"
    assert submit.client.get(path).status_code == 200
    assert api(role).get(path).status_code == status
    assert api("operator").get(f"/jobs/{uuid.uuid4()}/placement").status_code == 404


def test_a_placement_is_one_query_however_many_servers(submit, worker):
    job = submit()
    for number in range(5):
        worker(name=f"w{number}")
    with CapturedQueries(connection) as queries:
        assert len(job_placement(uuid.UUID(job["id"]), None)["eligible"]) == 5
    assert len(queries) == 1
    assert not Attempt.objects.exists()
