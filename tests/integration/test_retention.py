"""What is past its retention goes, and nothing else, in batches that nobody has to wait for."""

import io
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command
from django.db import IntegrityError, OperationalError, connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from controlplane.celery import app
from controlplane.core.model_fields import ClockTimestamp
from jobs import tasks
from jobs.management.commands import prune as command
from jobs.models import Attempt, Execution, LateReport, LogLine, Trigger, WorkerJob
from jobs.services import retention
from jobs.services.retention import PruneFailed, prune_old_rows
from jobs.states import JOB_TRANSITIONS, LIVE, TERMINAL, JobState
from liveness.models import Heartbeat, Server, ServerEvent
from liveness.services import tokens
from liveness.services.retention import BATCH, Pruning
from tests.support import executions as support
from tests.support.clock import Clock
from tests.support.http import Caller, Worker
from tests.support.transitions import put, way_to

DAY = 86400
NOTHING = {"executions": 0, "slots": 0, "jobs": 0, "servers": 0, "batches": 0, "events": 0, "heartbeats": 0}
OLD = "clock_timestamp() - interval '100 days'"
TIMES = "from generate_series(1, %s)"
TABLES = [WorkerJob, Attempt, LateReport, Server, ServerEvent, Heartbeat]


def execute(statement, params=None):
    with connection.cursor() as cursor:
        cursor.execute(statement, params)
        return cursor.fetchall() if cursor.description else []


def keep(settings, **kept):
    """Nothing is pruned but what is named: `keep(settings, JOBS_JOB_RETENTION=1)`."""
    settings.JOBS = {"JOB_RETENTION": None, "EXECUTION_RETENTION": None, "HEARTBEAT_RETENTION": None}
    settings.LIVENESS = {"HEARTBEAT_RETENTION": None, "EVENT_RETENTION": None, "SERVER_RETENTION": None}
    for key, value in kept.items():
        app_name, _, name = key.partition("_")
        getattr(settings, app_name)[name] = value
    settings.JOBS, settings.LIVENESS = dict(settings.JOBS), dict(settings.LIVENESS)


def heartbeats(role="server", number=1):
    for _ in range(number):
        Heartbeat.objects.create(server_id=uuid.uuid4(), attempt_id=uuid.uuid4(), role=role)


def events(number=1):
    for _ in range(number):
        ServerEvent.objects.create(subject_type="server", actor="server", reason="a test")


def finished(worker, submit):
    """A job that came to an end on this worker, with a late report."""
    job = submit()["id"]
    attempt = worker.hold()
    assert worker.complete(attempt, 42)["accepted"]
    assert worker.complete(attempt, 43)["code"] == "conflicting_report"
    return job


def pruned(pool):
    """Runs `prune` on a connection of its own; its future."""

    def elsewhere():
        try:
            return prune_old_rows()
        finally:
            connection.close()

    return pool.submit(elsewhere)


def small_batches(size=10):
    """Heartbeats, a few rows at a time."""
    (pruning,) = [one for one in retention.list_prunings() if one.name == "heartbeats"]
    return replace(pruning, batch=size)


def counts():
    return [model.objects.count() for model in TABLES]


@pytest.mark.parametrize(
    ("kind", "make", "kept"),
    [
        ("heartbeats", heartbeats, DAY),
        ("heartbeats", lambda: heartbeats("claimer"), DAY),
        ("heartbeats", lambda: heartbeats("runner"), DAY),
        ("events", events, 90 * DAY),
    ],
    ids=["server", "claimer", "runner", "event"],
)
def test_a_row_of_history_goes_when_it_is_older_than_its_retention_and_not_before(db, clock, kind, make, kept):
    make()
    clock.advance(kept)
    assert prune_old_rows() == NOTHING
    clock.advance(0.001)
    assert prune_old_rows() == {**NOTHING, kind: 1}
    assert prune_old_rows() == NOTHING
    assert not Heartbeat.objects.exists() and not ServerEvent.objects.exists()


@pytest.mark.parametrize(("setting", "goes"), [("JOBS", "runner"), ("LIVENESS", "server")])
def test_heartbeats_of_servers_and_of_attempts_have_retentions_of_their_own(db, clock, settings, setting, goes):
    keep(settings, **{f"{setting}_HEARTBEAT_RETENTION": 60})
    heartbeats("server"), heartbeats("runner")
    clock.advance(61)
    assert prune_old_rows() == {**NOTHING, "heartbeats": 1}
    assert Heartbeat.objects.get().role != goes


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
    assert counts() == [1, 0, 0, 0, 1, 1]


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
    """Ids follow the time only roughly: within a batch, an old row may come after a young one."""
    clock.advance(2 * DAY)
    heartbeats()
    clock.advance(-2 * DAY)
    heartbeats()
    clock.advance(2 * DAY)
    assert prune_old_rows()["heartbeats"] == 1


def test_the_walk_goes_on_while_there_are_old_rows_and_ends_with_them(db, clock):
    heartbeats(number=5)
    clock.advance(2 * DAY)
    heartbeats(number=10)
    few = small_batches(2)
    with CaptureQueriesContext(connection) as queries:
        spans = list(few.list_due_spans())
    assert [span.due for span in spans] == [2, 2, 1]
    assert len(queries) == 4, "one batch of young rows was looked at, and no more of them"
    assert [few.delete(span) for span in spans] == [2, 2, 1]


def test_what_was_interrupted_is_done_by_the_next(committed, monkeypatch):
    execute(f"insert into liveness_heartbeat (at, server_id, role) select {OLD}, uuid7(), 'server' {TIMES}", [100])
    few = small_batches()
    monkeypatch.setattr(retention, "list_prunings", lambda: [few])

    def tell(kind, deleted, total):
        if deleted == 30:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prune_old_rows(report_progress=tell)
    assert Heartbeat.objects.count() == 70
    assert prune_old_rows() == {"heartbeats": 70}


def test_a_batch_that_fails_keeps_no_other_from_its_end(worker, submit, clock):
    one = worker()
    finished(one, submit)
    heartbeats()
    clock.advance(31 * DAY)
    execute("create function broken() returns trigger language plpgsql as $$ begin raise 'a bad row'; end $$")
    execute("create trigger broken before delete on jobs_workerjob for each row execute function broken()")
    with pytest.raises(PruneFailed, match="jobs") as error:
        prune_old_rows()
    assert error.value.done["jobs"] == 0 < error.value.done["heartbeats"]
    assert (WorkerJob.objects.count(), Attempt.objects.count()) == (1, 1)
    with pytest.raises(CommandError, match="jobs"):
        call_command("prune")
    execute("drop function broken() cascade")
    assert prune_old_rows()["jobs"] == 1


def test_a_lost_database_ends_the_run(db, clock, monkeypatch):
    heartbeats(number=3)
    clock.advance(2 * DAY)
    few, tried = small_batches(1), []
    monkeypatch.setattr(retention, "list_prunings", lambda: [few])

    def lost(_, span):
        tried.append(span)
        raise OperationalError("the connection is lost")

    monkeypatch.setattr(Pruning, "delete", lost)
    with pytest.raises(OperationalError):
        prune_old_rows()
    assert len(tried) == 1


def test_four_at_once_do_what_one_does(committed):
    execute(f"insert into liveness_heartbeat (at, server_id, role) select {OLD}, uuid7(), 'server' {TIMES}", [50_000])
    execute(
        "insert into liveness_serverevent (at, subject_type, action, actor, reason)"
        f" select {OLD}, 'instance', 'a test', 'server', '' {TIMES}",
        [30_000],
    )
    with ThreadPoolExecutor(4) as pool:
        done = [future.result(30) for future in [pruned(pool) for _ in range(4)]]
    assert sum(one["heartbeats"] for one in done) == 50_000
    assert sum(one["events"] for one in done) == 30_000
    assert not Heartbeat.objects.exists() and not ServerEvent.objects.exists()


@pytest.mark.parametrize("kind", ["jobs", "servers"])
def test_what_someone_holds_is_left_for_the_next_time_and_nobody_waits(committed, settings, kind):
    keep(settings, JOBS_JOB_RETENTION=0, LIVENESS_SERVER_RETENTION=0)
    one = Worker.register(Caller(tokens.create_token("registrar", "worker")))
    if kind == "servers":
        put(Server.objects.get(pk=one.id), "INACTIVE")
        row = Server.objects.filter(pk=one.id)
    else:
        one.running()
        client = Caller(tokens.create_token("client", "client"))
        job = client.post("/jobs", {"action": {"type": "script", "command": "true"}}).json()["id"]
        one.complete(one.hold())
        row = WorkerJob.objects.filter(pk=job)
    Clock().advance(1)
    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            row.select_for_update(no_key=True).get()
            assert pruned(pool).result(10) == NOTHING
        assert pruned(pool).result(10) == {**NOTHING, kind: 1}
    assert not row.exists()


def nodes(plan):
    yield plan
    for part in plan.get("Plans", []):
        yield from nodes(part)


@pytest.mark.exhaustive
def test_half_a_million_heartbeats_go_in_batches_of_neighbours(committed):
    execute(
        "insert into liveness_heartbeat (at, server_id, attempt_id, role)"
        " select clock_timestamp() - make_interval(secs => (500000 - n) * 0.34),"  # 47 hours: about half are old
        "        ('00000000-0000-7000-8000-' || lpad((n % 500)::text, 12, '0'))::uuid, null, 'server'"
        "   from generate_series(1, 500000) n"
    )
    execute("analyze liveness_heartbeat")
    (pruning,) = [one for one in retention.list_prunings() if one.name == "heartbeats"]
    spans = list(pruning.list_due_spans())
    with CaptureQueriesContext(connection) as queries:
        deleted = [pruning.delete(span) for span in spans]
    assert deleted == [span.due for span in spans]
    assert max(deleted) <= BATCH
    assert Heartbeat.objects.count() == 500_000 - sum(deleted)
    assert 225_000 < sum(deleted) < 275_000
    statements = [query["sql"] for query in queries if "delete from" in query["sql"]]
    assert len(statements) == len(spans)
    for statement in (statements[0], statements[-1]):
        plan = execute(f"explain (format json) {statement}")[0][0][0]["Plan"]
        reads = [node for node in nodes(plan) if node.get("Relation Name") and node["Node Type"] != "ModifyTable"]
        assert {node["Node Type"] for node in reads} == {"Index Scan"}
        assert "id <=" in reads[0]["Index Cond"] and "id >" in reads[0]["Index Cond"]


def test_the_command_says_what_it_would_do_and_what_it_did(db, clock, capsys):
    heartbeats(number=2), events()
    clock.advance(91 * DAY)
    call_command("prune", "--dry-run")
    assert (
        "would delete: 0 executions, 0 slots, 0 jobs, 0 servers, 0 batches, 1 event, 2 heartbeats\n"
        in capsys.readouterr().out
    )
    call_command("prune")
    assert capsys.readouterr().out.splitlines() == [
        "executions: 0 past their retention",
        "slots: 0 past their retention",
        "jobs: 0 past their retention",
        "servers: 0 past their retention",
        "batches: 0 past their retention",
        "events: 1 past their retention",
        "heartbeats: 2 past their retention",
        "deleted: 0 executions, 0 slots, 0 jobs, 0 servers, 0 batches, 1 event, 2 heartbeats",
    ]
    call_command("prune")
    assert capsys.readouterr().out.endswith(
        "deleted: 0 executions, 0 slots, 0 jobs, 0 servers, 0 batches, 0 events, 0 heartbeats\n"
    )


def test_large_numbers_are_written_to_be_read():
    assert command.format_counts({"servers": 1, "heartbeats": 12345}) == "1 server, 12,345 heartbeats"


def test_on_a_terminal_it_shows_how_far_it_is(db, clock, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    heartbeats()
    clock.advance(2 * DAY)
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setenv("TERM", "xterm")
    call_command("prune")
    shown = terminal.getvalue()
    assert "heartbeats" in shown and "1/1" in shown
    assert "past their retention" not in shown


def test_it_is_done_once_a_day(db, clock):
    heartbeats()
    clock.advance(2 * DAY)
    tasks.prune()
    assert not Heartbeat.objects.exists()
    heartbeats()
    for hours, is_there in ((1, True), (22, True), (1, False)):  # a tick each hour, by whose clock ever
        clock.step(hours * 3600)
        Heartbeat.objects.update(at="2000-01-01T00:00Z")
        tasks.prune()
        assert Heartbeat.objects.exists() is is_there


def test_no_tick_carries_a_moment_of_its_senders_clock():
    app.finalize()
    entries = [entry for name, entry in app.conf.beat_schedule.items() if name.startswith("jobs.")]
    assert len(entries) == 7
    assert not [entry for entry in entries if "expires" in entry["options"]]


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
