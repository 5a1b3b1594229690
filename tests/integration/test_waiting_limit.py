"""No client fills the queue for all others: a limit of what one has waiting, and of how far it may push itself."""

import pytest
from django.db import connection

from controlplane.core.sql_book import compose_statement
from jobs.models import WorkerJob
from jobs.services import waiting_counts
from tests.integration.test_hot_paths import run, submit_many
from tests.support.plans import nodes
from tests.support.queries import CapturedQueries

SCRIPT = {"action": {"type": "script", "command": "true"}}
EXECUTION = {"name": "nightly", "steps": [{"key": "a", **SCRIPT}, {"key": "b", **SCRIPT}]}
CHILD = {"action": {"type": "execution", **EXECUTION}}


@pytest.fixture(autouse=True)
def limited(settings):
    settings.JOBS = {"WAITING_LIMIT": 3}


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


@pytest.mark.parametrize(("priority", "status"), [(1000, 201), (-1000, 201), (1001, 400), (-1001, 400)])
def test_nobody_pushes_itself_further_before_the_others_than_the_limit(api, priority, status):
    assert api("client").post("/jobs", {**SCRIPT, "priority": priority}).status_code == status
    answer = api("operator").post("/triggers", {"name": "t", "interval_seconds": 60, "priority": priority, **SCRIPT,
                                                "execution": EXECUTION})  # fmt: skip
    assert answer.status_code == status


def test_it_is_counted_in_an_index_and_no_further_than_matters(api, settings):
    settings.JOBS = {}
    submit_many(5_000)
    assert api("client").post("/jobs", [SCRIPT] * 50).status_code == 201
    run("analyze jobs_workerjob")
    owner = WorkerJob.objects.order_by("-id").values_list("owner", flat=True)[0]
    counted = f"explain (analyze, format json) select {compose_statement('jobs', 'waiting_of_owner')}"
    (plan,) = run(counted, {"owner": owner, "waiting_limit": 20})
    (read,) = [node for node in nodes(plan["Plan"]) if node["Node Type"].endswith("Scan") and "Index Name" in node]
    assert (read["Index Name"], read["Actual Rows"]) == ("job_waiting_of_owner", 20)


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
    monkeypatch.setattr(waiting_counts, "counts", known)  # this process has not heard of those two
    assert client.post("/jobs", [SCRIPT] * 2).status_code == 201
    assert refused(client.post("/jobs", SCRIPT))["waiting"] == 5
