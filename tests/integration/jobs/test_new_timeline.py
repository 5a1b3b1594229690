"""A new timeline of the database: no attempt number is given out twice."""

import uuid
from datetime import timedelta
from functools import partial
from io import StringIO
from types import SimpleNamespace

import pytest
from django.core.management import call_command
from django.db import connection
from django.db.models import F

from controlplane.core.database import outside_pool
from controlplane.core.model_fields import ClockTimestamp
from jobs.models import WorkerJob
from jobs.services.failover import RAISED_BY
from jobs.services.liveness_check import check_liveness
from liveness.models import DatabaseTimeline, ServerEvent, UnheardServer
from liveness.services import failover
from tests.support.executions import step


@pytest.fixture(autouse=True)
def seen(monkeypatch):
    """Forget what other tests of this process have seen."""
    monkeypatch.setattr(failover, "seen", failover.LogPosition())
    return failover.seen


@pytest.fixture
def known(db, clock, seen):
    failover.compare_timeline()
    return DatabaseTimeline.objects.get()


def promote():
    """Let the database look as if a standby had been promoted: its timeline and its process are others."""
    earlier = ClockTimestamp() - timedelta(hours=1)
    DatabaseTimeline.objects.update(timeline=F("timeline") + 1, compared_with_server=earlier, began_with_server=earlier)


def restart():
    DatabaseTimeline.objects.update(compared_with_server=ClockTimestamp() - timedelta(hours=1))


def counts():
    return dict(WorkerJob.objects.values_list("payload", "attempt_count"))


def test_the_first_comparison_notes_the_timeline_and_holds_nothing(submit, worker, known):
    submit()
    assert known.raised_at is not None
    assert [attempt["number"] for attempt in worker().claim()] == [1]
    assert not ServerEvent.objects.filter(action="new_timeline").exists()


def test_attempt_counts_of_all_open_jobs_are_raised_once(submit, worker, begin, known):
    one = worker()
    submit(payload="ended")
    one.complete(one.hold())
    submit(payload="runs")
    one.hold()
    submit(payload="waits")
    begin({**step("a"), "payload": "first"}, {**step("b"), "payload": "blocked", "depends_on": ["a"]})
    promote()
    for _ in range(2):
        check_liveness()
        assert counts() == {
            "ended": 1, "runs": 1 + RAISED_BY, "waits": RAISED_BY, "first": RAISED_BY, "blocked": RAISED_BY
        }  # fmt: skip


def test_no_job_is_claimed_before_the_counts_are_raised(submit, worker, known):
    submit()
    one = worker()
    promote()
    assert one.claim() == []
    failover.compare_timeline()
    one.beat(running=[])
    assert one.claim() == [], "the counts are not raised yet"
    check_liveness()
    assert [attempt["number"] for attempt in one.claim()] == [1 + RAISED_BY]


def test_an_ordinary_restart_raises_nothing(submit, worker, known):
    submit()
    one = worker()
    restart()
    assert one.claim() == []
    failover.compare_timeline()
    assert [attempt["number"] for attempt in one.claim()] == [1]


def test_a_running_attempt_continues_and_its_report_counts(submit, worker, known):
    one = worker()
    submit()
    attempt = one.hold()
    promote()
    check_liveness()
    assert one.beat(running=[{"attempt": attempt["id"]}]).json()["lost"] == []
    assert one.complete(attempt, 42)["accepted"]
    assert WorkerJob.objects.get().output == 42


def test_no_job_is_claimed_until_an_attempt_that_the_database_lost_has_stopped(submit, worker, known):
    one, two = worker(name="one"), worker(name="two")
    submit()
    promote()
    check_liveness()
    lost = str(uuid.uuid4())
    two.beat(running=[])
    assert two.claim() == [], "one has not listed yet what it runs"
    assert one.beat(running=[{"attempt": lost}], stopped=[]).json()["lost"] == [lost]
    assert two.claim() == [], "the code of the lost attempt may still run"
    assert one.beat(stopped=[]).json()["lost"] == [lost]
    assert one.beat(stopped=[lost]).json()["lost"] == []
    assert [attempt["number"] for attempt in two.claim()] == [1 + RAISED_BY]


def test_an_attempt_that_does_not_stop_holds_others_for_the_cancel_timeout(submit, worker, known, clock):
    one = worker()
    submit()
    promote()
    check_liveness()
    one.beat(running=[{"attempt": str(uuid.uuid4())}], stopped=[])
    clock.advance(61)
    one.beat(stopped=[])
    assert one.claim() == []
    check_liveness()
    assert len(one.claim()) == 1


def test_plain_heartbeats_count_once_running_attempts_would_have_been_listed(submit, worker, known, clock):
    one = worker()
    submit()
    promote()
    check_liveness()
    clock.advance(29)
    one.beat()
    check_liveness()
    assert one.claim() == []
    clock.advance(2)
    one.beat()
    check_liveness()
    assert len(one.claim()) == 1


def test_a_silent_worker_is_waited_for_no_longer_than_its_timeout(submit, worker, known, clock):
    worker(name="silent", config={"timeout_seconds": 60})
    submit()
    promote()
    check_liveness()
    clock.advance(59)
    one = worker(name="one")
    check_liveness()
    assert one.claim() == []
    clock.advance(2)
    one.beat()
    check_liveness()
    assert len(one.claim()) == 1


def test_a_log_that_ends_earlier_than_before_is_a_new_timeline(submit, worker, known, seen):
    submit()
    one = worker()
    DatabaseTimeline.objects.update(began_with_server=ClockTimestamp() - timedelta(hours=1))
    seen.highest += 1_000_000_000_000
    check_liveness()
    one.beat(running=[])
    assert [attempt["number"] for attempt in one.claim()] == [1 + RAISED_BY]
    assert "bytes of the log are" in ServerEvent.objects.get(action="new_timeline").reason
    assert DatabaseTimeline.objects.latest("id").lost_bytes > 0


@pytest.mark.parametrize("is_new_connection", [False, True])
def test_a_later_position_that_another_thread_notes_is_no_lost_log(known, seen, monkeypatch, is_new_connection):
    DatabaseTimeline.objects.update(began_with_server=ClockTimestamp() - timedelta(hours=1))

    def run_while_another_thread_compares(run, *args):
        result = run(*args)
        seen.highest += 1_000_000_000_000
        return result

    later = seen.highest + 1_000_000_000_000
    if is_new_connection:
        raw = connection.connection
        execute = partial(run_while_another_thread_compares, raw.execute)
        failover.compare_on_connection(SimpleNamespace(execute=execute, autocommit=True, transaction=raw.transaction))
    else:
        fetch = partial(run_while_another_thread_compares, failover.sql.compare_timeline.fetch_row)
        names = SimpleNamespace(
            compare_timeline=SimpleNamespace(fetch_row=fetch),
            note_timeline=failover.sql.note_timeline, lock_timelines=failover.sql.lock_timelines,
        )  # fmt: skip
        monkeypatch.setattr(failover, "sql", names)
        failover.compare_timeline()
    assert DatabaseTimeline.objects.count() == 1
    assert seen.highest == later


def test_a_lost_log_is_found_again_until_it_is_noted(known, seen, monkeypatch):
    DatabaseTimeline.objects.update(began_with_server=ClockTimestamp() - timedelta(hours=1))
    seen.highest += 1_000_000_000_000
    with monkeypatch.context() as broken:
        broken.setattr(failover, "report", lambda noted: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            failover.compare_timeline()
    assert seen.highest > 1_000_000_000_000
    failover.compare_timeline()
    assert seen.highest < 1_000_000_000_000


def test_only_the_first_process_that_misses_a_part_of_the_log_notes_it(known, seen):
    DatabaseTimeline.objects.update(began_with_server=ClockTimestamp() - timedelta(hours=1))
    for _ in range(2):
        seen.highest += 1_000_000_000_000
        check_liveness()
    assert DatabaseTimeline.objects.count() == 2


def test_an_event_states_which_changes_may_be_lost(worker, known):
    worker()
    promote()
    check_liveness()
    event = ServerEvent.objects.get(action="new_timeline")
    assert (event.subject_type, event.subject_name, event.actor) == ("instance", "database", "liveness")
    assert event.reason.startswith("timeline 1 after 2: changes after 2")
    assert UnheardServer.objects.count() == 1


def test_after_restore_states_what_was_lost_once(submit, worker, known):
    worker()
    submit()
    promote()
    out = StringIO()
    call_command("after_restore", stdout=out)
    lines = dict(line.split(": ", 1) for line in out.getvalue().splitlines())
    assert lines["DISCONNECTED"] == "1" and lines["Raised attempt counts"] == "1"
    assert lines["Timeline of the database"] == "1" and lines["Lost"].startswith("changes after 2")
    out = StringIO()
    call_command("after_restore", stdout=out)
    assert out.getvalue() == "DISCONNECTED: 0\n"


@pytest.mark.parametrize("is_pooled", [False, True])
def test_a_new_connection_compares_before_it_is_used(transactional_db, is_pooled):
    failover.compare_timeline()
    promote()
    if is_pooled and connection.pool:
        connection.close()
        connection.pool.drain()
        connection.ensure_connection()
    else:
        with outside_pool() as own:
            own.ensure_connection()
    assert DatabaseTimeline.objects.count() == 2
