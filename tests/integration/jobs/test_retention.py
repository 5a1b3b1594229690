"""Retention deletes rows past their limit and nothing else, in batches that block nobody."""

import uuid
from dataclasses import replace
from datetime import timedelta

import pytest
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from controlplane.core.model_fields import ClockTimestamp
from jobs.models import Attempt, Execution, LateReport, LogLine, Trigger, WorkerJob
from jobs.services import retention
from jobs.services.retention import prune_old_rows
from jobs.states import JOB_TRANSITIONS, LIVE, TERMINAL, JobState
from liveness.models import AttemptHeartbeat, Heartbeat, Server, ServerEvent
from tests.support import executions as support
from tests.support.queries import CapturedQueries
from tests.support.transitions import put, way_to

DAY = 86400
NOTHING = {"executions": 0, "slots": 0, "backfills": 0, "jobs": 0, "servers": 0, "batches": 0, "signals": 0,
           "events": 0, "heartbeats": 0, "partitions": 0}  # fmt: skip
OLD = "clock_timestamp() - interval '100 days'"
TIMES = "from generate_series(1, %s)"
TABLES = [WorkerJob, Attempt, LateReport, Server, ServerEvent, Heartbeat, AttemptHeartbeat]


def execute(statement, params=None):
    with connection.cursor() as cursor:
        cursor.execute(statement, params)
        return cursor.fetchall() if cursor.description else []


def keep(settings, **kept):
    """Prune only the named kinds: `keep(settings, JOBS_JOB_RETENTION=1)`."""
    settings.JOBS = {"JOB_RETENTION": None, "EXECUTION_RETENTION": None, "HEARTBEAT_RETENTION": None}
    settings.LIVENESS = {"HEARTBEAT_RETENTION": None, "EVENT_RETENTION": None, "SERVER_RETENTION": None}
    for key, value in kept.items():
        app_name, _, name = key.partition("_")
        getattr(settings, app_name)[name] = value
    settings.JOBS, settings.LIVENESS = dict(settings.JOBS), dict(settings.LIVENESS)


def heartbeats(role="server", number=1):
    for _ in range(number):
        if role == "server":
            Heartbeat.objects.create(server_id=uuid.uuid4())
        else:
            AttemptHeartbeat.objects.create(server_id=uuid.uuid4(), attempt_id=uuid.uuid4(), role=role)


def events(number=1):
    for _ in range(number):
        ServerEvent.objects.create(subject_type="server", actor="server", reason="a test")


def finished(worker, submit):
    """Return a job that ended on this worker, with a superseded report."""
    job = submit()["id"]
    attempt = worker.hold()
    assert worker.complete(attempt, 42)["accepted"]
    assert worker.complete(attempt, 43)["code"] == "conflicting_report"
    return job


def pruned(pool):
    """Run `prune` on its own connection, and return the future."""

    def elsewhere():
        try:
            return prune_old_rows()
        finally:
            connection.close()

    return pool.submit(elsewhere)


def small_batches(size=10):
    """Read a few events in each batch."""
    (pruning,) = [one for one in retention.list_prunings() if one.name == "events"]
    return replace(pruning, batch=size)


def counts():
    return [model.objects.count() for model in TABLES]


def test_an_event_goes_when_it_is_older_than_its_retention_and_not_before(db, clock):
    events()
    clock.advance(90 * DAY)
    assert prune_old_rows()["events"] == 0
    clock.advance(0.001)
    assert prune_old_rows()["events"] == 1
    assert prune_old_rows() == NOTHING
    assert not ServerEvent.objects.exists()


@pytest.mark.parametrize("role", ["server", "claimer", "runner"])
def test_a_heartbeat_goes_when_its_whole_day_is_older_than_its_retention(db, clock, role):
    model = Heartbeat if role == "server" else AttemptHeartbeat
    heartbeats(role)
    clock.advance(seconds_to_midnight() + DAY - 1)
    prune_old_rows()
    assert model.objects.count() == 1
    clock.advance(1)
    assert prune_old_rows() == {**NOTHING, "partitions": 2}  # one of each table
    assert not model.objects.exists()
    assert prune_old_rows() == NOTHING


def seconds_to_midnight():
    """Return the seconds until the end of the day in UTC."""
    ((seconds,),) = execute("select 86400 - extract(epoch from clock_timestamp())::numeric % 86400")
    return float(seconds)


@pytest.mark.parametrize(("setting", "goes"), [("JOBS", AttemptHeartbeat), ("LIVENESS", Heartbeat)])
def test_heartbeats_of_servers_and_of_attempts_have_retentions_of_their_own(db, clock, settings, setting, goes):
    keep(settings, **{f"{setting}_HEARTBEAT_RETENTION": 60})
    heartbeats("server"), heartbeats("runner")
    clock.advance(DAY + 61)
    assert prune_old_rows()["partitions"] >= 1
    assert {model for model in (Heartbeat, AttemptHeartbeat) if not model.objects.exists()} == {goes}


def test_an_ended_job_goes_with_all_that_is_its_own_and_not_before_its_retention(worker, submit, clock, settings):
    keep(settings, JOBS_JOB_RETENTION=30 * DAY)
    one = worker()
    finished(one, submit)
    clock.advance(1)
    one.beat()
    later = finished(one, submit)
    clock.advance(30 * DAY - 1)
    assert prune_old_rows() == NOTHING
    clock.advance(0.001)
    assert prune_old_rows() == {**NOTHING, "jobs": 1}
    assert str(WorkerJob.objects.get().pk) == later
    assert str(Attempt.objects.get().job_id) == str(LateReport.objects.get().job_id) == later


@pytest.mark.parametrize("state", ["PENDING", "CLAIMED", "RUNNING"])
def test_a_job_that_has_not_ended_never_goes(worker, submit, clock, state):
    one = worker()
    submit()
    if state != "PENDING":
        one.hold(running=state == "RUNNING")
    clock.advance(1000 * DAY)
    assert (prune_old_rows()["jobs"], WorkerJob.objects.get().state) == (0, state)


@pytest.mark.parametrize("state", sorted(TERMINAL - {JobState.SKIPPED}))
def test_every_ended_job_goes(submit, clock, state):
    job = WorkerJob.objects.filter(pk=submit()["id"])
    for step in way_to(JOB_TRANSITIONS, JobState.PENDING, state)[1:]:
        held, ended = (uuid.uuid4() if step in LIVE else None), (ClockTimestamp() if step in TERMINAL else None)
        job.update(state=step, attempt_id=held, finished_at=ended)
    clock.advance(31 * DAY)
    assert prune_old_rows()["jobs"] == 1


def test_an_inactive_server_goes_when_it_is_inactive_for_longer_than_its_retention(worker, clock, settings):
    keep(settings, LIVENESS_SERVER_RETENTION=30 * DAY)
    one, other = worker(name="one"), worker(name="other")
    clock.advance(40 * DAY)
    put(Server.objects.get(pk=one.id), "INACTIVE")
    put(Server.objects.get(pk=other.id), "NOT_RUNNING")
    clock.advance(30 * DAY)
    assert prune_old_rows() == NOTHING
    clock.advance(0.001)
    assert prune_old_rows() == {**NOTHING, "servers": 1}
    assert Server.objects.get().name == "other"
    assert ServerEvent.objects.filter(server_id=one.id).exists()


def test_a_server_stays_while_an_attempt_refers_to_it_and_goes_with_the_last(worker, submit, clock, settings):
    keep(settings, LIVENESS_SERVER_RETENTION=0, JOBS_JOB_RETENTION=30 * DAY)
    one = worker()
    finished(one, submit)
    put(Server.objects.get(pk=one.id), "INACTIVE")
    clock.advance(30 * DAY)
    assert prune_old_rows(dry_run=True) == prune_old_rows() == NOTHING
    clock.advance(1)
    assert prune_old_rows(dry_run=True) == {**NOTHING, "jobs": 1, "servers": 1}
    assert prune_old_rows() == {**NOTHING, "jobs": 1, "servers": 1}


def test_none_keeps_all(worker, submit, clock, settings):
    keep(settings)
    one = worker()
    finished(one, submit)
    put(Server.objects.get(pk=one.id), "INACTIVE")
    heartbeats(), heartbeats("runner"), events()
    clock.advance(100_000 * DAY)
    before = counts()
    assert prune_old_rows(dry_run=True) == prune_old_rows() == NOTHING
    assert counts() == before


def test_a_dry_run_changes_nothing_and_counts_what_a_run_deletes(worker, submit, clock):
    for _ in range(3):
        one = worker(name=str(uuid.uuid4()))
        finished(one, submit)
        put(Server.objects.get(pk=one.id), "INACTIVE")
    submit()
    clock.advance(91 * DAY)
    heartbeats(), events()
    before = counts()
    pruned = prune_old_rows(dry_run=True)
    assert counts() == before
    assert prune_old_rows() == pruned
    assert (pruned["jobs"], pruned["servers"]) == (3, 3)
    assert pruned["partitions"] > 0
    assert counts() == [1, 0, 0, 0, 1, 1, 0]


def test_only_retention_may_delete_events_and_only_while_it_does(db, clock):
    events()
    clock.advance(91 * DAY)
    assert prune_old_rows()["events"] == 1
    events()
    for change in (lambda: ServerEvent.objects.all().delete(), lambda: ServerEvent.objects.update(reason="another")):
        with pytest.raises(IntegrityError, match="append-only"), transaction.atomic():
            change()


def test_the_token_of_a_purged_server_is_unknown(worker, clock):
    one = worker()
    put(Server.objects.get(pk=one.id), "INACTIVE")
    clock.advance(31 * DAY)
    assert prune_old_rows()["servers"] == 1
    path = f"/servers/{one.id}"
    reports = {"reports": [{"attempt": str(uuid.uuid4()), "event": "STARTED"}]}
    for call, body in {"heartbeat": {}, "claims": {"limit": 1}, "reports": reports}.items():
        answer = one.post(f"{path}/{call}", body)
        assert (answer.status_code, answer.json()["code"]) == (410, "server_unknown"), call


def test_rows_out_of_order_go_as_well(db, clock):
    """Ids follow the time only roughly: in one batch, an old row may come after a new one."""
    clock.advance(100 * DAY)
    events()
    clock.advance(-100 * DAY)
    events()
    clock.advance(100 * DAY)
    assert prune_old_rows()["events"] == 1


def test_the_scan_continues_while_there_are_old_rows_and_ends_after_them(db, clock):
    events(number=5)
    clock.advance(100 * DAY)
    events(number=10)
    few = small_batches(2)
    with CapturedQueries(connection) as queries:
        spans = list(few.list_due_spans())
    assert [span.due for span in spans] == [2, 2, 1]
    assert len(queries) == 4, "one batch of young rows was looked at, and no more of them"
    assert [few.delete(span) for span in spans] == [2, 2, 1]


def test_a_job_goes_with_the_lines_that_its_code_wrote(worker, submit, settings):
    one = worker()
    submit()
    attempt = one.hold()
    assert one.report({"attempt": attempt["id"], "event": "LOG", "stream": "STDOUT", "lines": ["x"]})[0]["accepted"]
    one.complete(attempt)
    age("jobs_workerjob")
    keep(settings, JOBS_JOB_RETENTION=DAY)
    assert prune_old_rows() == {**NOTHING, "jobs": 1}
    assert not LogLine.objects.exists()


def age(table):
    execute(f"update {table} set created_at = {OLD}, finished_at = {OLD} where finished_at is not null")  # noqa: S608


def test_an_execution_goes_with_its_children_and_steps_and_no_sooner(begin, do, settings):
    child = {"type": "execution", "name": "inner", "steps": [support.step("x"), support.step("y", "x")]}
    over = begin(support.step("c", action=child), on_error=[{"key": "tell", "action": support.SCRIPT}])
    do("x", fails=True)
    do("tell")
    assert over.state == "FAILED"
    open_one = begin(support.step("a"), support.step("b", "a"))
    do("a")
    age("jobs_workerjob")
    keep(settings, JOBS_JOB_RETENTION=DAY, JOBS_EXECUTION_RETENTION=DAY)
    assert prune_old_rows() == NOTHING
    age("jobs_execution")
    assert prune_old_rows(dry_run=True) == {**NOTHING, "executions": 1}
    assert prune_old_rows() == {**NOTHING, "executions": 1}
    assert [str(id) for id in Execution.objects.values_list("pk", flat=True)] == [open_one.id]
    assert WorkerJob.objects.count() == 2
    assert open_one.states() == {"a": "COMPLETED", "b": "PENDING"}


def test_an_execution_stays_until_its_last_hook_has_ended(begin, do, settings):
    child = {"type": "execution", "name": "inner", "steps": [support.step("x")]}
    child["on_error"] = [{"key": "tell", "action": support.SCRIPT}]
    begin(support.step("c", action=child))
    do("x", fails=True)
    age("jobs_execution")
    keep(settings, JOBS_EXECUTION_RETENTION=DAY)
    assert prune_old_rows(dry_run=True) == prune_old_rows() == NOTHING
    do("tell")
    assert prune_old_rows() == {**NOTHING, "executions": 1}


def test_the_old_slots_of_a_trigger_go(api, settings):
    body = {"name": "t", "interval_seconds": 5, "action": support.SCRIPT}
    body["execution"] = {"name": "x", "steps": [support.step("a")]}
    trigger = Trigger.objects.get(pk=api("operator").post("/triggers", body).json()["id"])
    now = timezone.now()
    for days, outcome in ((100, "MISSED"), (50, "EVALUATING"), (0, "FIRED")):
        trigger.slots.create(slot=now - timedelta(days=days), outcome=outcome)
    keep(settings, JOBS_EXECUTION_RETENTION=DAY)
    assert prune_old_rows() == {**NOTHING, "slots": 1}
    assert sorted(slot.outcome for slot in trigger.slots.all()) == ["EVALUATING", "FIRED"]
    for state, days in (("COMPLETED", 2), ("STOPPED", 0), ("RUNNING", None)):
        ended = None if days is None else now - timedelta(days=days)
        period = {"start_at": now, "end_at": now, "created_at": now - timedelta(days=9)}
        trigger.backfills.create(max_running=1, by="x", state=state, finished_at=ended, **period)
    assert prune_old_rows() == {**NOTHING, "backfills": 1}
    assert {one.state for one in trigger.backfills.all()} == {"STOPPED", "RUNNING"}
