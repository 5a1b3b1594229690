"""Runs of the retention: interrupted, several at once, by command, and once a day."""

import io
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection, transaction

from controlplane import beat
from controlplane.celery import OwnScheduler, app
from controlplane.observability import presence
from jobs import tasks
from jobs.management.commands import prune as command
from jobs.models import Attempt, WorkerJob
from jobs.services import retention
from jobs.services.retention import PruneFailed, prune_old_rows
from liveness.models import Heartbeat, Server, ServerEvent
from liveness.services import tokens
from liveness.services.retention import BATCH
from tests.integration.jobs.test_retention import (
    DAY,
    NOTHING,
    OLD,
    TIMES,
    events,
    execute,
    finished,
    heartbeats,
    keep,
    pruned,
    small_batches,
)
from tests.support.clock import Clock
from tests.support.http import Caller, Worker
from tests.support.queries import CapturedQueries
from tests.support.transitions import put

OLD_EVENTS = (
    "insert into liveness_serverevent (at, subject_type, action, actor, reason)"
    f" select {OLD}, 'instance', 'a test', 'server', '' {TIMES}"
)


def test_what_was_interrupted_is_done_by_the_next(committed, monkeypatch):
    execute(OLD_EVENTS, [100])
    few = small_batches()
    monkeypatch.setattr(retention, "list_prunings", lambda: [few])

    def tell(kind, deleted, total):
        if deleted == 30:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prune_old_rows(report_progress=tell)
    assert ServerEvent.objects.count() == 70
    assert prune_old_rows() == {"events": 70, "heartbeats": 0, "partitions": 0}


def test_a_batch_that_fails_keeps_no_other_from_its_end(worker, submit, clock):
    one = worker()
    finished(one, submit)
    heartbeats()
    clock.advance(31 * DAY)
    execute("create function broken() returns trigger language plpgsql as $$ begin raise 'a bad row'; end $$")
    execute("create trigger broken before delete on jobs_workerjob for each row execute function broken()")
    with pytest.raises(PruneFailed, match="jobs") as error:
        prune_old_rows()
    assert error.value.done["jobs"] == 0 < error.value.done["partitions"]
    assert (WorkerJob.objects.count(), Attempt.objects.count()) == (1, 1)
    with pytest.raises(CommandError, match="jobs"):
        call_command("prune")
    execute("drop function broken() cascade")
    assert prune_old_rows()["jobs"] == 1


def test_a_lost_database_ends_the_run(db, clock, monkeypatch):
    events(number=3)
    clock.advance(100 * DAY)
    few, tried = small_batches(1), []
    monkeypatch.setattr(retention, "list_prunings", lambda: [few])

    def lost(_, span):
        tried.append(span)
        raise OperationalError("the connection is lost")

    monkeypatch.setattr(type(few), "delete", lost)
    with pytest.raises(OperationalError):
        prune_old_rows()
    assert len(tried) == 1


def test_four_at_once_do_what_one_does(committed):
    execute(f"insert into liveness_heartbeat (at, server_id) select {OLD}, uuid7() {TIMES}", [20_000])
    execute(OLD_EVENTS, [10_000])
    with ThreadPoolExecutor(4) as pool:
        done = [future.result(30) for future in [pruned(pool) for _ in range(4)]]
    assert sum(one["heartbeats"] for one in done) == 20_000
    assert sum(one["events"] for one in done) == 10_000
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
def test_half_a_million_events_go_in_batches_of_neighbours(committed):
    execute(
        "insert into liveness_serverevent (at, subject_type, action, actor, reason)"
        " select clock_timestamp() - make_interval(secs => (500000 - n) * 31),"  # 180 days: about half are old
        "        'instance', 'a test', 'server', ''"
        "   from generate_series(1, 500000) n"
    )
    execute("analyze liveness_serverevent")
    (pruning,) = [one for one in retention.list_prunings() if one.name == "events"]
    spans = list(pruning.list_due_spans())
    with CapturedQueries(connection) as queries:
        deleted = [pruning.delete(span) for span in spans]
    assert deleted == [span.due for span in spans]
    assert max(deleted) <= BATCH
    assert ServerEvent.objects.count() == 500_000 - sum(deleted)
    assert 225_000 < sum(deleted) < 275_000
    statements = [text for query in queries for text in query["sql"].split(";\n") if "delete from" in text]
    assert len(statements) == len(spans)
    for statement in (statements[0], statements[-1]):
        plan = execute(f"explain (format json) {statement}")[0][0][0]["Plan"]
        reads = [node for node in nodes(plan) if node.get("Relation Name") and node["Node Type"] != "ModifyTable"]
        assert {node["Node Type"] for node in reads} == {"Index Scan"}
        assert "id <=" in reads[0]["Index Cond"] and "id >" in reads[0]["Index Cond"]


def test_the_command_prints_what_it_would_do_and_what_it_did(db, clock, capsys):
    execute("insert into liveness_heartbeat values (timestamptz '2020-02-02', uuid7()), ('2020-02-03', uuid7())")
    events()
    clock.advance(91 * DAY)
    old = retention.list_old_partitions()
    call_command("prune", "--dry-run")
    *lines, last = capsys.readouterr().out.splitlines()
    assert [f"would drop: {name}" for name in old] == [line for line in lines if line.startswith("would drop")]
    some = f"1 event, 2 heartbeats, {len(old)} partitions"
    none = "0 executions, 0 slots, 0 backfills, 0 jobs, 0 servers, 0 batches, 0 signals"
    assert last == f"would delete: {none}, {some}"
    assert retention.list_old_partitions() == old
    call_command("prune")
    assert capsys.readouterr().out.splitlines() == [
        "executions: 0 past their retention",
        "slots: 0 past their retention",
        "backfills: 0 past their retention",
        "jobs: 0 past their retention",
        "servers: 0 past their retention",
        "batches: 0 past their retention",
        "signals: 0 past their retention",
        "events: 1 past their retention",
        "heartbeats: 2 past their retention",
        f"partitions: {len(old)} past their retention",
        f"deleted: {none}, {some}",
    ]
    call_command("prune")
    assert capsys.readouterr().out.endswith(f"deleted: {none}, 0 events, 0 heartbeats, 0 partitions\n")


def test_large_numbers_are_written_to_be_read():
    assert command.format_counts({"servers": 1, "heartbeats": 12345}) == "1 server, 12,345 heartbeats"


def test_on_a_terminal_it_shows_how_far_it_is(db, clock, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    events()
    clock.advance(100 * DAY)
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setenv("TERM", "xterm")
    call_command("prune")
    shown = terminal.getvalue()
    assert "events" in shown and "1/1" in shown
    assert "past their retention" not in shown


def test_it_is_done_once_a_day_and_partitions_at_each_tick(db, clock):
    events()
    clock.advance(100 * DAY)
    tasks.prune()
    assert not ServerEvent.objects.exists()
    execute(OLD_EVENTS, [1])
    for hours, is_there in ((1, True), (22, True), (1, False)):  # one tick an hour, by the database's clock
        clock.step(hours * 3600)
        execute("insert into liveness_heartbeat values (timestamptz '2020-02-02', uuid7())")
        tasks.prune()
        assert ServerEvent.objects.exists() is is_there
        assert not Heartbeat.objects.exists()


def test_the_first_check_is_due_at_once_and_nothing_else(db, monkeypatch):
    monkeypatch.setattr(presence, "register_process", lambda *_: None)
    monkeypatch.setattr("controlplane.celery.check_settings", Mock())  # it commits the fingerprint of the key
    app.finalize()
    scheduler = OwnScheduler(app=app, lazy=True)
    scheduler.setup_schedule()
    due = {name for name, entry in scheduler.schedule.items() if entry.is_due().is_due}
    assert due == {"jobs.tasks.check_liveness"}


def test_no_tick_carries_a_moment_of_its_senders_clock():
    app.finalize()
    entries = {name: entry for name, entry in app.conf.beat_schedule.items() if name.startswith("jobs.")}
    optional = {"jobs.tasks.count_stored_bytes"}  # there if an earlier test of this process set a limit
    assert entries.keys() | optional == beat.intervals().keys() | optional
    assert len(entries.keys() - optional) == 7
    assert not [name for name, entry in entries.items() if "expires" in entry["options"]]
