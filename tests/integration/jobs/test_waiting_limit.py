"""Limits for the waiting jobs of one client, so that no client fills the queue for all others."""

import pytest
from django.db import connection
from django.utils import timezone

from controlplane.core.sql_book import compose_statement
from jobs.models import WorkerJob
from jobs.services import waiting_counts, waiting_tag_sets
from tests.integration.races.test_hot_paths import run, submit_many
from tests.support.plans import nodes
from tests.support.queries import CapturedQueries

SCRIPT = {"action": {"type": "script", "command": "true"}}
EXECUTION = {"name": "nightly", "steps": [{"key": "a", **SCRIPT}, {"key": "b", **SCRIPT}]}
CHILD = {"action": {"type": "execution", **EXECUTION}}


@pytest.fixture(autouse=True)
def limited(settings):
    settings.JOBS = {"WAITING_LIMIT": 3}
    waiting_tag_sets.known.clear()


def refused(answer):
    assert (answer.status_code, answer.json()["code"]) == (429, "too_many_waiting")
    assert int(answer.headers["Retry-After"]) > 0
    return answer.json()


def test_at_the_limit_a_job_is_refused_and_one_below_it_is_not(api):
    client = api("client")
    assert [client.post("/jobs", SCRIPT).status_code for _ in range(3)] == [201] * 3
    assert refused(client.post("/jobs", SCRIPT))["limit"] == 3
    assert len(client.get("/jobs").json()["items"]) == 3


def test_a_list_is_refused_as_a_whole(api):
    client = api("client")
    refused(client.post("/jobs", [SCRIPT] * 4))
    assert client.get("/jobs").json()["items"] == []
    assert client.post("/jobs", [SCRIPT] * 3).status_code == 201


def test_a_known_job_is_found_at_the_limit_as_well(api):
    client = api("client")
    first = client.post("/jobs", [{**SCRIPT, "key": f"{number}"} for number in range(3)]).json()["items"]
    again = client.post("/jobs", {**SCRIPT, "key": "0"})
    assert (again.status_code, again.json()["id"]) == (200, first[0]["id"])
    refused(client.post("/jobs", {**SCRIPT, "key": "3"}))


def test_another_client_has_a_limit_of_its_own_and_what_has_begun_does_not_count(api, worker):
    client = api("client")
    client.post("/jobs", [SCRIPT] * 3)
    assert api("client").post("/jobs", SCRIPT).status_code == 201
    worker().claim(limit=1)
    assert client.post("/jobs", SCRIPT).status_code == 201
    refused(client.post("/jobs", SCRIPT))


def test_executions_are_refused_too_but_not_the_steps_of_those_that_run(api, worker):
    client = api("client")
    first = client.post("/executions", {**EXECUTION, "steps": [{"key": "a", **SCRIPT}, {**CHILD, "key": "b"}]})
    assert first.status_code == 201
    assert client.post("/executions", EXECUTION).status_code == 429
    client.post(f"/executions/{first.json()['id']}/cancel", {})
    assert client.post("/executions", EXECUTION).status_code == 201
    again = client.post(f"/executions/{first.json()['id']}/rerun", {})
    assert again.status_code == 201
    refused(client.post(f"/executions/{first.json()['id']}/rerun", {}))


def test_without_a_limit_nothing_is_counted(api, settings):
    settings.JOBS = {"WAITING_LIMIT": None}
    assert api("client").post("/jobs", [SCRIPT] * 10).status_code == 201


def test_it_costs_no_round_trip(api, settings):
    def statements(limit):
        settings.JOBS = {"WAITING_LIMIT": limit}
        client = api("client")
        with CapturedQueries(connection) as queries:
            assert client.post("/jobs", SCRIPT).status_code == 201
        return len(queries)

    assert statements(None) == statements(1000)


def tagged(*tags):
    return {**SCRIPT, "tags": list(tags), "unmatched": "wait"}


@pytest.fixture
def few_sets(settings):
    settings.JOBS = {"WAITING_TAG_SETS_LIMIT": 3}
    waiting_tag_sets.known.clear()


def refused_sets(answer):
    assert (answer.status_code, answer.json()["code"]) == (429, "too_many_tag_sets")
    assert int(answer.headers["Retry-After"]) > 0 and answer.json()["limit"] == 3


def test_jobs_that_wait_have_so_many_sets_of_tags_and_no_more(few_sets, api, worker):
    client = api("client")
    assert [client.post("/jobs", tagged(name)).status_code for name in "abc"] == [201] * 3
    refused_sets(client.post("/jobs", tagged("d")))
    refused_sets(client.post("/jobs", [tagged("a"), tagged("d")]))
    assert client.post("/jobs", [tagged("a"), tagged("b")] * 5).status_code == 201
    assert api("client").post("/jobs", tagged("d")).status_code == 201  # each client has its own limit
    assert worker(tags=["script", "a"], max_concurrent=50).claim(limit=50)
    assert client.post("/jobs", tagged("d")).status_code == 201


def test_lists_and_steps_count_and_nothing_is_stored_above_the_limit(few_sets, api):
    client = api("client")
    refused_sets(client.post("/jobs", [tagged(name) for name in "abcd"]))
    steps = [{"key": name, **tagged(name)} for name in "abcd"]
    refused_sets(client.post("/executions", {"name": "e", "steps": steps}))
    after = [{**step, "depends_on": ["a"]} if step["key"] != "a" else step for step in steps]
    refused_sets(client.post("/executions", {"name": "e", "steps": after}))
    child = {"type": "execution", "name": "e", "steps": after}
    refused_sets(client.post("/jobs", {"action": child}))
    refused_sets(client.post("/executions", {"name": "e", "steps": [{"key": "x", "action": child}]}))
    assert not WorkerJob.objects.exists()
    assert client.post("/executions", {"name": "e", "steps": steps[:3]}).status_code == 201
    refused_sets(client.post("/executions", {"name": "e", "steps": steps[1:]}))


def test_sets_of_tags_are_counted_by_other_processes_too_and_not_for_ever(few_sets, api):
    client = api("client")
    client.post("/jobs", [tagged(name) for name in "abc"])
    waiting_tag_sets.known.clear()  # like another process
    assert client.post("/jobs", tagged("a")).status_code == 201
    refused_sets(client.post("/jobs", tagged("d")))


def test_a_submission_of_known_tags_counts_no_sets_and_any_takes_one_round_trip(api, settings, monkeypatch):
    settings.JOBS = {}
    monkeypatch.setattr(waiting_tag_sets, "KNOWN_FOR", float("inf"))
    monkeypatch.setattr(waiting_counts, "COUNTED_AFTER", float("inf"))
    client = api("client")
    client.post("/jobs", [tagged(f"t{number}") for number in range(300)])
    owner = WorkerJob.objects.values_list("owner", flat=True)[0]
    assert waiting_tag_sets.limit_to_count(owner, {("script", "t1"), ("script", "t2")}) is None
    assert waiting_tag_sets.limit_to_count(owner, {("script", "t1"), ("script", "new")}) == 1000
    with CapturedQueries(connection) as unlimited:
        settings.JOBS = {"WAITING_TAG_SETS_LIMIT": None}
        client.post("/jobs", tagged("other"))
    settings.JOBS = {}
    with CapturedQueries(connection) as known:
        client.post("/jobs", tagged("t1"))
    with CapturedQueries(connection) as new:
        client.post("/jobs", tagged("new"))
    assert len(known) == len(new) == len(unlimited)


def test_without_a_limit_sets_of_tags_are_not_counted(api, settings):
    settings.JOBS = {"WAITING_TAG_SETS_LIMIT": None}
    assert api("client").post("/jobs", [tagged(f"t{number}") for number in range(1000)]).status_code == 201


@pytest.mark.parametrize(("priority", "status"), [(1000, 201), (-1000, 201), (1001, 400), (-1001, 400)])
def test_nobody_pushes_itself_further_before_the_others_than_the_limit(api, priority, status):
    assert api("client").post("/jobs", {**SCRIPT, "priority": priority}).status_code == status
    answer = api("operator").post("/triggers", {"name": "t", "interval_seconds": 60, "priority": priority, **SCRIPT,
                                                "execution": EXECUTION})  # fmt: skip
    assert answer.status_code == status


def test_it_is_counted_in_an_index_and_no_further_than_matters(api, settings):
    settings.JOBS = {}
    submit_many(5_000)
    assert api("client").post("/jobs", [SCRIPT] * 1_000).status_code == 201
    most = WorkerJob.objects.order_by("-id").values("id")[50:1_000]
    WorkerJob.objects.filter(id__in=most).update(state="CANCELLED", finished_at=timezone.now())
    run("analyze jobs_workerjob")
    owner = WorkerJob.objects.order_by("-id").values_list("owner", flat=True)[0]
    rule = compose_statement("jobs", "waiting_of_owner").replace("s.owner", "%(owner)s")
    (plan,) = run(f"explain (analyze, format json) select {rule}", {"owner": owner, "waiting_limit": 20})
    (read,) = [node for node in nodes(plan["Plan"]) if node["Node Type"].endswith("Scan") and "Index Name" in node]
    assert (read["Index Name"], read["Actual Rows"]) == ("job_waiting_tags_of_owner", 20)


READ = "select seq_tup_read + idx_tup_fetch from pg_stat_xact_user_tables where relname = 'jobs_workerjob'"


def rows_read_by_a_submission(client):
    before = run(READ)
    assert client.post("/jobs", SCRIPT).status_code == 201
    return run(READ) - before


def test_far_below_the_limit_what_waits_is_not_counted_at_each_submission(api, settings, monkeypatch):
    settings.JOBS = {}
    monkeypatch.setattr(waiting_counts, "COUNTED_AFTER", float("inf"))
    client = api("client")
    client.post("/jobs", [SCRIPT] * 200)
    assert rows_read_by_a_submission(client) < 20


def test_a_count_is_not_good_for_ever(api, settings, monkeypatch):
    settings.JOBS = {}
    monkeypatch.setattr(waiting_counts, "COUNTED_AFTER", -1)
    client = api("client")
    client.post("/jobs", [SCRIPT] * 200)
    assert rows_read_by_a_submission(client) >= 200


def test_the_limit_holds_although_other_processes_store_jobs_between_two_counts(api, settings, monkeypatch):
    settings.JOBS = {"WAITING_LIMIT": 5}
    monkeypatch.setattr(waiting_counts, "COUNTED_AFTER", float("inf"))
    monkeypatch.setattr(waiting_counts, "ROOM", 2)
    client = api("client")
    client.post("/jobs", SCRIPT)
    known = dict(waiting_counts.counts)
    client.post("/jobs", [SCRIPT] * 2)
    monkeypatch.setattr(waiting_counts, "counts", known)  # like another process that stored these two
    assert client.post("/jobs", [SCRIPT] * 2).status_code == 201
    assert refused(client.post("/jobs", SCRIPT))["waiting"] == 5
