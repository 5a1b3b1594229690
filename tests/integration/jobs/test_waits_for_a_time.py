"""Steps that wait for a time: they run without a worker and are ended by the tick of the triggers."""

from datetime import timedelta
from uuid import UUID

import pytest
from django.db import connection
from django.utils import timezone

from jobs.models import WorkerJob
from jobs.services import execution_repair, waits
from jobs.services.sweep import run_sweep
from jobs.sql import sql
from tests.support.executions import SCRIPT, step
from tests.support.waits import NO_WAIT, wait


def refused(client, *steps, **fields):
    answer = client.post("/executions", {"name": "x", "steps": list(steps), **fields})
    assert answer.status_code == 400, answer.content
    return str(answer.json()["errors"])


def test_a_wait_begins_without_a_worker_and_ends_after_its_seconds(begin, do, clock):
    run = begin(step("a"), wait("pause", "a", seconds=3600), step("b", "pause"))
    do("a")
    assert run.states() == {"a": "COMPLETED", "pause": "RUNNING", "b": "BLOCKED"}
    clock.advance(3599)
    assert waits.end_waits() == {}
    clock.advance(2)
    assert waits.end_waits() == {"COMPLETED": 1}
    assert run.states() == {"a": "COMPLETED", "pause": "COMPLETED", "b": "PENDING"}
    do("b")
    assert run.state == "COMPLETED"


def test_a_first_step_may_wait(begin, clock):
    run = begin(wait("pause", seconds=5))
    assert run.states() == {"pause": "RUNNING"}
    clock.advance(5)
    waits.end_waits()
    assert run.state == "COMPLETED"


def test_a_wait_for_a_past_time_ends_with_the_next_tick(begin, clock):
    run = begin(wait("pause", until="2001-01-01T00:00:00+02:00"))
    waits.end_waits()
    assert run.state == "COMPLETED"


def test_a_waiting_step_and_its_job_show_until_when(begin, clock):
    run = begin(wait("pause", until="2999-01-01T00:00:00Z"), step("b"))
    shown = NO_WAIT | {"what": "time", "until": "2999-01-01T00:00:00Z"}
    assert run.step("pause")["waiting_for"] == shown
    job = run.client.get(f"/jobs/{run.step('pause')['job']}").json()
    assert (job["waiting_for"], job["attempts"], job["state"]) == (shown, [], "RUNNING")
    assert run.step("b")["waiting_for"] is None
    WorkerJob.objects.filter(step="pause").update(wait_due_at=timezone.now() - timedelta(1))
    waits.end_waits()
    assert run.step("pause")["waiting_for"] is None


def test_seconds_and_until_may_be_references(begin, do, clock):
    run = begin(
        step("a"),
        wait("one", "a", seconds={"from": "$.steps.a.output.pause"}),
        wait("two", "a", until={"from": "$.inputs.day", "default": "2998-01-01T00:00:00Z"}),
    )
    do("a", output={"pause": 60})
    assert run.step("two")["waiting_for"]["until"] == "2998-01-01T00:00:00Z"
    job = run.client.get(f"/jobs/{run.step('one')['job']}").json()
    assert job["payload"] == {"seconds": 60}
    assert job["payload_from"] == {"/seconds": "$.steps.a.output.pause"}
    clock.advance(60)
    assert waits.end_waits() == {"COMPLETED": 1}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("seconds", "60"), ("seconds", -1), ("seconds", 1e12), ("seconds", None), ("seconds", [1]),
        ("until", 60), ("until", "tomorrow"), ("until", "infinity"), ("until", "2026-12-24T18:00:00"),
        ("until", "2026-13-24T18:00:00Z"), ("until", None),
    ],
    ids=str,
)  # fmt: skip
def test_a_referenced_value_of_a_wrong_type_fails_the_step(begin, do, field, value):
    run = begin(step("a"), wait("pause", "a", **{field: {"from": "$.steps.a.output.x"}}), step("b", "pause"))
    do("a", output={"x": value})
    error = run.step("pause")["error"]
    assert error["code"] == "INPUT_NOT_AVAILABLE"
    assert "$.steps.a.output.x" in error["message"] and field in error["message"]
    assert run.states() == {"a": "COMPLETED", "pause": "FAILED", "b": "SKIPPED"}


def test_a_referenced_time_outside_of_the_calendar_is_moved_into_it(begin, do):
    run = begin(step("a"), wait("pause", "a", until={"from": "$.steps.a.output"}))
    do("a", output="9999-12-31T23:00:00-12:00")
    assert run.step("pause")["waiting_for"]["until"] == "9999-12-30T00:00:00Z"


@pytest.mark.parametrize(
    ("action", "named"),
    [
        ({}, "exactly one"),
        ({"seconds": 1, "until": "2026-12-24T18:00:00Z"}, "exactly one"),
        ({"seconds": -1}, "seconds"),
        ({"seconds": "1"}, "seconds"),
        ({"seconds": {"from": "$.inputs.x", "default": "soon"}}, "seconds"),
        ({"until": "soon"}, "until"),
        ({"seconds": {"from": "$.steps.later.output"}}, "later"),
        ({"seconds": {"from": "$.inputs.password"}}, "hidden"),
        ({"second": 1}, "Unknown"),
        ({"seconds": 1, "payload": {}}, "runs no code"),
        ({"seconds": 1, "timeout_seconds": 5}, "Only a wait for a signal"),
        ({"seconds": 1, "max_retries": 5}, "runs no code"),
    ],
    ids=str,
)
def test_a_wrong_wait_is_refused_at_submission(submitter, action, named):
    assert named in refused(submitter, wait("pause", **action))


def test_only_a_step_may_wait(submitter):
    answer = submitter.post("/jobs", {"action": {"type": "wait", "seconds": 1}})
    assert answer.status_code == 400
    assert "Must be one of" in str(answer.json())


def test_a_condition_may_skip_a_wait(begin):
    run = begin(
        wait("pause", seconds=5, when="$.inputs.n > 1"), step("b", "pause", run_if_skipped=True), inputs={"n": 1}
    )
    assert run.states() == {"pause": "SKIPPED", "b": "PENDING"}


def test_a_cancelled_execution_ends_its_waits_at_once(begin, clock):
    run = begin(wait("pause", seconds=5), step("b", "pause"))
    run.cancel()
    assert run.state == "CANCELLED"
    assert run.states() == {"pause": "CANCELLED", "b": "CANCELLED"}
    clock.advance(10)
    assert waits.end_waits() == {}


def test_a_timeout_of_the_execution_ends_its_waits(begin, clock):
    run = begin(wait("pause", seconds=500), timeout_seconds=5)
    clock.advance(6)
    run_sweep()
    assert run.state == "CANCELLED"


def test_a_waiting_step_can_be_cancelled_or_failed_by_hand(begin, submitter):
    run = begin(wait("one", seconds=5), wait("two", seconds=5), step("b", "one"))
    cancelled = submitter.post(f"/jobs/{run.step('one')['job']}/cancel", {})
    assert cancelled.json()["state"] == "CANCELLED"
    failed = submitter.post(f"/jobs/{run.step('two')['job']}/fail", {})
    assert failed.json()["error"]["code"] == "FAILED_BY_OPERATOR"
    assert run.states() == {"one": "CANCELLED", "two": "FAILED", "b": "SKIPPED"}
    assert run.state == "FAILED"


def test_a_waiting_step_cannot_be_resubmitted_or_changed(begin, submitter):
    job = begin(wait("pause", seconds=5)).step("pause")["job"]
    assert submitter.post(f"/jobs/{job}/resubmit", {}).json()["code"] == "job_waiting"
    assert submitter.call("PATCH", f"/jobs/{job}", {"priority": 5}).json()["code"] == "already_started"


def test_a_sweep_leaves_waiting_steps_as_they_are(begin, clock):
    run = begin(wait("pause", seconds=5), step("b", "pause"))
    assert run_sweep()["repaired"] == {}
    assert run.states() == {"pause": "RUNNING", "b": "BLOCKED"}
    assert run.events() == []


def test_a_repair_begins_a_wait_that_never_began(begin, clock):
    run = begin(step("a"), wait("pause", seconds=5))
    WorkerJob.objects.filter(step="pause").update(state="PENDING", wait=None, wait_due_at=None)
    assert run_sweep()["repaired"] == {"REPAIRED": 1}
    assert run.step("pause")["state"] == "RUNNING"


def test_a_repair_leaves_waits_and_begins_what_follows_them(begin, clock):
    run = begin(wait("one", seconds=5), wait("two", seconds=500), step("b", "one"))
    WorkerJob.objects.filter(step="one").update(state="COMPLETED", finished_at=timezone.now())
    assert run_sweep()["repaired"] == {"REPAIRED": 1}
    assert run.states() == {"one": "COMPLETED", "two": "RUNNING", "b": "PENDING"}


def test_sweeps_take_turns_to_look_closely_at_open_executions(begin, clock, monkeypatch):
    monkeypatch.setattr(execution_repair, "LOOKED_AT", 2)
    monkeypatch.setattr(execution_repair.RepairPosition, "since", execution_repair.FIRST)
    for number in range(5):
        begin(wait("pause", seconds=500), *([step("b", "pause")] if number == 4 else []))
    WorkerJob.objects.filter(step="pause").update(state="COMPLETED", finished_at=timezone.now(), passed_on=True)
    assert [run_sweep()["repaired"].get("REPAIRED", 0) for _ in range(4)] == [2, 2, 1, 0]


def test_a_new_process_begins_to_look_closely_at_any_open_execution(begin, clock):
    runs = [UUID(begin(wait("pause", seconds=500)).id) for _ in range(5)]
    assert {sql.pick_repair_start.fetch_only_row(most=2).since for _ in range(200)} == {None, *runs[:4]}
    assert {sql.pick_repair_start.fetch_only_row(most=5).since for _ in range(20)} == {None}


def test_a_child_execution_may_wait(begin, clock):
    child = {"type": "execution", "name": "inner", "steps": [wait("pause", seconds=5)]}
    run = begin({"key": "a", "action": child})
    clock.advance(5)
    waits.end_waits()
    assert run.state == "COMPLETED"


def test_a_restart_keeps_a_wait_that_has_ended(begin, do, submitter, clock):
    run = begin(wait("pause", seconds=5), step("b", "pause"))
    clock.advance(5)
    waits.end_waits()
    do("b", fails=True)
    again = submitter.post(f"/executions/{run.id}/restart", {}).json()
    assert [step["state"] for step in again["steps"]] == ["COMPLETED", "PENDING"]


def test_a_wait_requires_no_worker(submitter, worker):
    worker(tags=["script"])
    body = {"name": "x", "require_worker": True, "steps": [wait("pause", seconds=5), step("b", "pause")]}
    assert submitter.post("/executions", body).status_code == 201


def test_many_waits_of_several_executions_end_in_one_batch(begin, clock):
    runs = [begin(*(wait(str(n), seconds=5) for n in range(20)), {"key": "b", "action": SCRIPT}) for _ in range(3)]
    clock.advance(5)
    assert waits.end_waits() == {"COMPLETED": 60}
    assert all(run.step("19")["state"] == "COMPLETED" for run in runs)


@pytest.mark.parametrize(
    ("name", "column"), [("end_due_waits", "wait_due_at"), ("end_timed_out_waits", "wait_timeout_observed")]
)
def test_a_tick_reads_no_wait_that_is_not_due(begin, name, column):
    begin(wait("pause", seconds=5), wait("paid", signal="paid", timeout_seconds=5))
    with connection.cursor() as cursor:
        cursor.execute("set local enable_seqscan = off; set local enable_sort = off; set local enable_bitmapscan = off")
        cursor.execute(f"explain {getattr(sql, name).text}", {"only": None, "batch": 100})
        plan = "\n".join(line for (line,) in cursor.fetchall())
    assert f"{column} <= (" in plan.partition("Index Cond: ")[2], plan
