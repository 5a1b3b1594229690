"""A limit for the bytes that the jobs of one token store, so that no client fills the disk."""

import re

import pytest
from django.core.management import call_command
from django.db import connection
from django.test import Client

from controlplane.core.settings_schema import parse_value
from jobs import tasks
from jobs.conf import JobsSettings
from jobs.models import LogLine, StoredBytes, WorkerJob
from jobs.services import stored_bytes
from liveness.models import ApiToken
from tests.integration.races.test_hot_paths import run
from tests.support.queries import CapturedQueries

SCRIPT = {"action": {"type": "script", "command": "true"}}
LARGE = {**SCRIPT, "payload": "x" * 1000}
SIZE = 1100
"""Upper bound of the bytes in which LARGE is stored."""
EXECUTION = {
    "name": "nightly",
    "inputs": {"text": "x" * 300},
    "steps": [{"key": "a", **SCRIPT}, {"key": "b", **SCRIPT}],
}


@pytest.fixture(autouse=True)
def limited(settings):
    settings.JOBS = {"STORED_BYTES_LIMIT": 3 * SIZE}
    return settings


def refused(answer):
    assert (answer.status_code, answer.json()["code"]) == (429, "quota_exceeded"), answer.content
    assert int(answer.headers["Retry-After"]) > 0
    return answer.json()


def filled(prefix="cp_"):
    """Return the counted bytes of each token, after a check that a new count finds the same."""
    counted = {}
    for token in ApiToken.objects.filter(prefix__startswith=prefix):
        rows = StoredBytes.objects.filter(owner=token)
        if rows.exists():
            counted[token.pk] = sum(rows.values_list("bytes", flat=True))
            assert stored_bytes.recount(token.pk) == counted[token.pk]
    return list(counted.values())


def only(values):
    (value,) = values
    return value


def test_at_the_limit_a_job_is_refused_and_one_below_it_is_not(api):
    client = api("client")
    assert [client.post("/jobs", LARGE).status_code for _ in range(3)] == [201] * 3
    before = only(filled())
    answer = refused(client.post("/jobs", LARGE))
    assert answer["limit"] == 3 * SIZE < answer["stored"] and str(3 * SIZE) in answer["detail"]
    assert only(filled()) == before and WorkerJob.objects.count() == 3


def test_what_a_step_gets_from_another_counts(begin, do, limited):
    limited.JOBS = {"STORED_BYTES_LIMIT": 1_000_000}
    got = {"key": "b", "depends_on": ["a"], **SCRIPT, "payload": {"from": "$.steps.a.output"}}
    begin({"key": "a", **SCRIPT}, got)
    do("a", output="x" * 5000)
    assert any(bytes > 10_000 for bytes in filled(""))


def test_a_job_that_fills_the_last_byte_is_taken_and_one_byte_more_is_not(api, limited):
    client = api("client")
    client.post("/jobs", LARGE)
    each = only(filled())
    limited.JOBS = {"STORED_BYTES_LIMIT": 2 * each}
    refused(client.post("/jobs", {**LARGE, "payload": "x" * 1001}))
    assert client.post("/jobs", LARGE).status_code == 201


def test_a_list_is_refused_as_a_whole(api):
    client = api("client")
    refused(client.post("/jobs", [LARGE] * 4))
    assert not WorkerJob.objects.exists() and filled() == []
    assert client.post("/jobs", [LARGE] * 3).status_code == 201


def test_a_known_job_is_found_at_the_limit_as_well(api):
    client = api("client")
    first = client.post("/jobs", [{**LARGE, "key": f"{number}"} for number in range(3)]).json()["items"]
    again = client.post("/jobs", {**LARGE, "key": "0"})
    assert (again.status_code, again.json()["id"]) == (200, first[0]["id"])


def test_another_client_and_the_jobs_of_triggers_have_nothing_to_do_with_it(api):
    client = api("client")
    client.post("/jobs", [LARGE] * 3)
    assert api("client").post("/jobs", LARGE).status_code == 201
    trigger = api("operator").post("/triggers", {"name": "t", "interval_seconds": 60, **SCRIPT, "execution": EXECUTION})
    assert trigger.status_code == 201
    assert len(filled()) == 2


def test_executions_count_with_their_inputs_and_steps(api, limited):
    client = api("client")
    first = client.post("/executions", EXECUTION)
    one = only(filled())
    assert one > 300 * 3
    limited.JOBS = {"STORED_BYTES_LIMIT": 2 * one}
    assert client.post("/executions", EXECUTION).status_code == 201
    refused(client.post("/executions", EXECUTION))
    client.post(f"/executions/{first.json()['id']}/cancel", {})
    refused(client.post(f"/executions/{first.json()['id']}/rerun", {}))
    assert only(filled()) == 2 * one


def test_addresses_to_notify_count(api, limited):
    limited.JOBS = {"STORED_BYTES_LIMIT": 1_000_000}
    notify = [{"url": "https://example.org/" + "x" * 500}]
    first, second = EXECUTION["steps"]
    for path, plain, notifying, places in (
        ("/jobs", SCRIPT, {**SCRIPT, "notify": notify}, 1),
        ("/executions", EXECUTION, {**EXECUTION, "notify": notify, "steps": [{**first, "notify": notify}, second]}, 2),
    ):
        StoredBytes.objects.all().delete()
        client, other = api("client"), api("client")
        assert client.post(path, plain).status_code == 201
        without = sum(filled())
        assert other.post(path, notifying).status_code == 201
        assert sum(filled()) - 2 * without > places * 500


def test_outputs_and_checkpoints_are_taken_beyond_the_limit_and_count(api, worker):
    client, one = api("client"), worker()
    client.post("/jobs", [LARGE] * 3)
    before = only(filled())
    attempt = one.claim()[0]
    one.start(attempt)
    for value, more in (("y" * 500, 502), ("y" * 100, 102), (None, 0)):
        assert one.report({"attempt": attempt["id"], "event": "CHECKPOINT", "value": value})[0]["accepted"]
        assert only(filled()) == before + more
    one.report({"attempt": attempt["id"], "event": "CHECKPOINT", "value": [1]})
    assert one.report({"attempt": attempt["id"], "event": "COMPLETED", "output": "z" * 5000})[0]["accepted"]
    assert only(filled()) == before + len("[1]") + 5002
    refused(client.post("/jobs", SCRIPT))


def log(one, attempt, sequence, *lines):
    report = {"attempt": attempt["id"], "event": "LOG", "stream": "STDOUT", "sequence": sequence, "lines": list(lines)}
    (result,) = one.report(report)
    assert result["accepted"]


def test_log_lines_count_and_one_line_explains_that_no_more_are_kept(api, worker, limited):
    client, one = api("client"), worker()
    job = client.post("/jobs", SCRIPT).json()["id"]
    attempt = one.claim()[0]
    one.start(attempt)
    before = only(filled())
    log(one, attempt, 1, "a" * 1000)
    assert only(filled()) == before + 1000
    limited.JOBS = {"STORED_BYTES_LIMIT": before + 1000}
    log(one, attempt, 2, "lost", "lost too")
    log(one, attempt, 3, "lost as well")
    lines = list(LogLine.objects.order_by("id").values_list("line", flat=True))
    assert lines == ["a" * 1000, stored_bytes.NO_ROOM]
    assert "STORED_BYTES_LIMIT" in client.get(f"/jobs/{job}/logs").content.decode()
    limited.JOBS = {"STORED_BYTES_LIMIT": 2 * before + 2000}
    log(one, attempt, 4, "kept again")
    assert LogLine.objects.order_by("id").last().line == "kept again"
    assert only(filled()) == before + 1000 + len(stored_bytes.NO_ROOM.encode()) + len("kept again")
    assert one.report({"attempt": attempt["id"], "event": "COMPLETED", "output": 1})[0]["accepted"]


def test_what_is_submitted_again_counts_and_is_refused_at_the_limit(api, worker, limited):
    client, one = api("client"), worker()
    job = client.post("/jobs", {**LARGE, "notify": [{"url": "https://example.org/"}]}).json()["id"]
    attempt = one.claim()[0]
    one.start(attempt)
    one.report({"attempt": attempt["id"], "event": "CHECKPOINT", "value": "y" * 300})
    one.report({"attempt": attempt["id"], "event": "FAILED", "error": {"code": "E", "message": "no"}})
    each = only(filled())
    limited.JOBS = {"STORED_BYTES_LIMIT": 2 * each - 1}
    refused(client.post(f"/jobs/{job}/resubmit", {}))
    limited.JOBS = {"STORED_BYTES_LIMIT": 2 * each}
    assert client.post(f"/jobs/{job}/resubmit", {}).status_code in (200, 201)
    assert only(filled()) == 2 * each
    refused(client.post(f"/jobs/{job}/resubmit", {"force": True}))


def test_a_checkpoint_that_is_dropped_makes_room(api, worker):
    client, one = api("client"), worker()
    job = client.post("/jobs", SCRIPT).json()["id"]
    before = only(filled())
    attempt = one.claim()[0]
    one.start(attempt)
    one.report({"attempt": attempt["id"], "event": "CHECKPOINT", "value": "y" * 300})
    assert client.post(f"/jobs/{job}/resubmit", {"keep_checkpoint": False}).status_code == 200
    assert only(filled()) == before


def test_retention_makes_room(api, worker, limited):
    client, one = api("client"), worker()
    client.post("/jobs", [LARGE] * 3)
    refused(client.post("/executions", EXECUTION))
    limited.JOBS = {"STORED_BYTES_LIMIT": "1M", "JOB_RETENTION": 0, "EXECUTION_RETENTION": 0}
    execution = client.post("/executions", EXECUTION).json()["id"]
    for attempt in one.claim(limit=3):
        one.start(attempt)
        log(one, attempt, 1, "a line")
        one.report({"attempt": attempt["id"], "event": "COMPLETED", "output": "done"})
    client.post(f"/executions/{execution}/cancel", {})
    assert only(filled()) > 3 * 1000
    run("update jobs_workerjob set finished_at = finished_at - interval '2 days'")
    run("update jobs_execution set finished_at = finished_at - interval '2 days'")
    call_command("prune")
    assert not WorkerJob.objects.exists()
    assert only(filled()) == 0


def test_rows_of_a_token_become_one_and_keep_their_sum(api):
    one, another = api("client"), api("client")
    for client in (one, another, one):
        client.post("/jobs", SCRIPT)
    before = sorted(filled_now())
    assert StoredBytes.objects.count() == 3
    stored_bytes.add_up()
    assert StoredBytes.objects.count() == 2 and sorted(filled_now()) == before


def filled_now():
    return [row.bytes for row in stored_bytes.sql.read_stored_bytes.fetch_rows(limit=9)]


def test_what_was_stored_before_there_was_a_limit_is_counted_with_it(api, limited):
    limited.JOBS = {}
    client = api("client")
    client.post("/jobs", [LARGE] * 3)
    assert not StoredBytes.objects.exists()
    limited.JOBS = {"STORED_BYTES_LIMIT": 3 * SIZE}
    tasks.count_stored_bytes()
    assert only(filled_now()) > 3000
    refused(client.post("/jobs", LARGE))


def test_without_a_limit_the_sums_are_forgotten_and_counted_again_with_the_next(api, limited):
    client = api("client")
    client.post("/jobs", LARGE)
    tasks.count_stored_bytes()
    limited.JOBS = {}
    client.post("/jobs", LARGE)
    tasks.sweep_jobs()
    assert not StoredBytes.objects.exists()
    limited.JOBS = {"STORED_BYTES_LIMIT": 3 * SIZE}
    run("delete from liveness_timetable where task = 'count_stored_bytes'")
    tasks.count_stored_bytes()
    assert only(filled_now()) > 2000


def test_it_costs_no_round_trip(api, limited):
    def statements(limit):
        limited.JOBS = {"STORED_BYTES_LIMIT": limit}
        client = api("client")
        with CapturedQueries(connection) as queries:
            assert client.post("/jobs", SCRIPT).status_code == 201
        return len(queries)

    assert statements(None) == statements(1_000_000)


def test_metrics_name_the_tokens_that_fill_most(api, limited):
    def samples():
        text = Client().get("/metrics", HTTP_AUTHORIZATION=f"Bearer {api('viewer').token}").content.decode()
        return re.findall(r'^controlplane_stored_bytes\{name="(.*)",token="(.*)"\} (.*)$', text, re.MULTILINE)

    assert samples() == []
    api("client").post("/jobs", LARGE)
    ((name, token, value),) = samples()
    assert ApiToken.objects.get(pk=token).name == name and 1000 < float(value) < SIZE
    limited.JOBS = {}
    assert samples() == []


@pytest.mark.parametrize(("raw", "value"), [("500MB", 500 * 2**20), (1000, 1000), ("2G", 2**31), ("none", None)])
def test_a_size_is_read_as_people_write_it(raw, value):
    kind = JobsSettings.__annotations__["stored_bytes_limit"]
    assert parse_value(raw, kind) == value


@pytest.mark.parametrize("raw", ["much", 0, -1, True, "5 apples"])
def test_what_is_no_size_is_refused(raw):
    with pytest.raises(ValueError, match="is not a size"):
        parse_value(raw, JobsSettings.__annotations__["stored_bytes_limit"])
