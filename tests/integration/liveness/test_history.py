"""The history counts each ended job once, by minute and hour, despite late commits, crashes and clocks set back."""

from contextlib import contextmanager
from threading import Event, Semaphore

import pytest
from django.db import connection, transaction

from jobs.history import WINDOWS, Dimension
from jobs.models import Attempt, HistoryEntry, HistoryWatermark, WorkerJob
from jobs.selectors.history import read_history, read_history_by
from jobs.services import history, retention
from jobs.services.history import count_history
from liveness.models import Server, ServerEvent
from liveness.services import tokens
from tests.support.clock import Clock
from tests.support.http import Caller
from tests.support.processes import eventually

HOUR = WINDOWS["1h"]
FAILED = {"event": "FAILED", "error": {"code": "BAD", "message": "no"}}


def ended(window=HOUR):
    """Return the number of jobs that ended within a window, by outcome, as the charts show it."""
    total = {}
    for point in read_history(window).points:
        for outcome, count in point.ended.items():
            total[outcome] = total.get(outcome, 0) + count
    return {outcome: count for outcome, count in total.items() if count}


def run_jobs(worker, submit, count=1, fails=False, **fields):
    for _ in range(count):
        submit(**fields)
        attempt = worker.hold()
        worker.report({"attempt": attempt["id"], **(FAILED if fails else {"event": "COMPLETED", "output": None})})


def test_before_anything_was_counted_a_history_is_empty(clock):
    seen = read_history(HOUR)
    assert len(seen.points) == 60
    assert seen.is_empty
    assert read_history_by(Dimension.TAG, HOUR) == ([], 0)


def test_ends_are_counted_in_the_minute_in_which_they_were(worker, submit, clock):
    one = worker()
    run_jobs(one, submit, 2)
    clock.advance(120)
    one.beat()
    run_jobs(one, submit, fails=True)
    count_history()
    by_minute = [dict(point.ended) for point in read_history(HOUR).points if any(point.ended.values())]
    assert [(minute["completed"], minute["failed"]) for minute in by_minute] == [(2, 0), (0, 1)]


def test_counting_twice_counts_nothing_twice(worker, submit, clock):
    run_jobs(worker(), submit, 3)
    assert count_history() > 0
    assert count_history() == 0
    clock.advance(30)
    count_history()
    assert ended() == {"completed": 3}


@pytest.mark.parametrize("window", WINDOWS.values(), ids=lambda window: window.name)
def test_every_window_shows_the_same_last_half_hour(worker, submit, clock, window):
    one = worker()
    for _ in range(3):
        run_jobs(one, submit)
        clock.advance(600)
        one.beat()
        count_history()
    assert ended(window) == {"completed": 3}


def test_hours_are_the_sums_of_their_minutes_and_each_end_is_in_one_of_them(worker, submit, clock):
    one = worker()
    for _ in range(30):
        run_jobs(one, submit)
        clock.advance(400)
        one.beat()
        count_history()
    hours = HistoryEntry.objects.filter(span="hour", dimension="")
    # Minutes are final only after the open transactions of other tests in this cluster have ended.
    eventually(lambda: (count_history(), hours.count() in (3, 4))[1], why="its hours are final")
    assert ended(WINDOWS["7d"]) == ended(WINDOWS["24h"]) == {"completed": 30}
    for window in ("24h", "7d"):
        (action,), _ = read_history_by(Dimension.ACTION, WINDOWS[window])
        assert (action.key, action.jobs) == ("script", 30)


def test_a_stretch_of_days_is_caught_up_without_a_gap(worker, submit, clock):
    one = worker()
    run_jobs(one, submit)
    count_history()
    for _ in range(6):
        clock.advance(10 * 3600)
        one.beat()
        run_jobs(one, submit)
    count_history()
    assert ended(WINDOWS["7d"]) == {"completed": 7}
    assert HistoryWatermark.objects.get().counted_until >= WorkerJob.objects.latest("finished_at").finished_at


def test_minutes_go_after_a_day_and_hours_past_their_retention(worker, submit, clock, settings):
    settings.JOBS = {**getattr(settings, "JOBS", {}), "HISTORY_RETENTION": 4 * 86400}
    one = worker()
    run_jobs(one, submit)
    count_history()
    clock.advance(30 * 3600)
    count_history()
    assert not HistoryEntry.objects.filter(span="minute", completed=1).exists()
    assert ended(WINDOWS["7d"]) == {"completed": 1}
    clock.advance(4 * 86400)
    count_history()
    assert ended(WINDOWS["7d"]) == {}


@pytest.mark.parametrize("others", [0, 1])
def test_what_a_slow_transaction_commits_late_is_counted_in_its_minute(
    committed, submit_committed, threads, clocked, others
):
    one = committed()
    submit_committed()
    attempt = one.hold()
    with under_way(threads, others), slow_end(attempt, threads) as commit:
        count_history()
        clocked.advance(3600)  # its transaction was open all the time
        count_history()
        assert ended(WINDOWS["24h"]) == {}
        commit()
    count_history()
    assert ended(WINDOWS["24h"]) == {"completed": 1}
    count_history()
    (entry,) = HistoryEntry.objects.filter(dimension="", completed=1, span="minute")
    assert (clocked_now() - entry.at).total_seconds() >= 3600


def test_a_minute_is_final_once_nobody_can_have_ended_anything_in_it(committed, submit_committed, threads, clocked):
    one = committed()
    submit_committed()
    attempt = one.hold()
    with slow_end(attempt, threads) as commit:
        count_history()
        before = HistoryWatermark.objects.get().closed_until
        clocked.advance(3600)
        count_history()
        assert HistoryWatermark.objects.get().closed_until == before
        commit()

    def is_final():
        count_history()
        return HistoryWatermark.objects.get().closed_until != before

    eventually(is_final, why="the minute is final")  # after the open transactions of other tests have ended


def test_the_first_count_waits_for_no_transaction_that_is_under_way(committed, submit_committed, threads, clocked):
    one = committed()
    submit_committed()
    attempt = one.hold()
    with slow_end(attempt, threads):
        count_history()
        assert HistoryWatermark.objects.get().counted_until == clocked_now()
        assert read_history(HOUR).points[-1].running == 1


def test_a_crash_between_the_figures_and_the_watermark_leaves_neither(
    committed, submit_committed, monkeypatch, clocked
):
    one = committed()
    run_jobs(one, submit_committed)

    def crash(**_):
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(history.sql, "delete_old_history", type("", (), {"fetch_rows": crash}))
        with pytest.raises(KeyboardInterrupt):
            count_history()
    assert not HistoryEntry.objects.exists()
    assert not HistoryWatermark.objects.exists()
    count_history()
    assert ended() == {"completed": 1}


def test_of_two_who_count_at_once_one_has_nothing_to_do(committed, submit_committed, threads, clocked):
    run_jobs(committed(), submit_committed)
    count_history()
    with transaction.atomic():
        assert history.sql.lock_history.fetch_row() is not None
        assert threads(count_history).result(timeout=60) == 0


def test_a_clock_that_was_set_back_loses_and_doubles_nothing(worker, submit, clock):
    one = worker()
    run_jobs(one, submit, 2)
    clock.advance(1200)
    one.beat()
    count_history()
    clock.step(-900)
    one.beat()
    run_jobs(one, submit)
    count_history()
    assert ended() == {"completed": 3}
    clock.advance(1800)
    count_history()
    assert ended() == {"completed": 3}


def test_the_wait_is_before_the_last_attempt_and_the_duration_is_of_its_code(worker, submit, clock):
    one = worker(config={"worker_task_restart_strategy": "NEVER"})
    submit()
    clock.advance(30)
    one.beat()
    (attempt,) = one.claim()
    one.report({"attempt": attempt["id"], "event": "RELEASED", "reason": "shutdown"})
    clock.advance(4)
    one.beat()
    attempt = one.hold()
    clock.advance(20)
    one.complete(attempt)
    count_history()
    (point,) = [point for point in read_history(HOUR).points if point.waited_p50 is not None]
    assert point.waited_p50 == point.waited_p95 == pytest.approx(4, rel=0.1)
    (action,), _ = read_history_by(Dimension.ACTION, HOUR)
    assert action.took_p50 == pytest.approx(20, rel=0.1)


def test_each_tag_and_each_action_has_its_failure_rate(worker, submit, clock):
    one = worker(tags=["script", "python", "gpu"])
    run_jobs(one, submit, 3, tags=["gpu"])
    run_jobs(one, submit, 1, fails=True, action={"type": "callable", "path": "shop.billing:run"})
    count_history()
    actions, _ = read_history_by(Dimension.ACTION, HOUR)
    assert [(row.key, row.jobs, row.failure_rate) for row in actions] == [
        ("callable shop.billing:run", 1, 1.0),
        ("script", 3, 0.0),
    ]
    tags, _ = read_history_by(Dimension.TAG, HOUR)
    assert {row.key: row.jobs for row in tags} == {"python": 1, "gpu": 3, "script": 3}


def test_beyond_the_most_frequent_tags_the_others_are_counted_together(worker, submit, clock, monkeypatch):
    one = worker(tags=["script", *(f"t{number}" for number in range(130))])
    for number in range(130):
        run_jobs(one, submit, tags=[f"t{number}"])
    count_history()
    assert HistoryEntry.objects.filter(dimension="tag").count() == 101
    assert HistoryEntry.objects.get(dimension="tag", key="").completed == 31
    count_history()
    assert HistoryEntry.objects.filter(dimension="tag").count() == 101


def test_losses_and_what_moved_are_marks(worker, submit, clock):
    one = worker()
    attempt = one.hold(running=False) if submit() else None
    one.start(attempt)
    ServerEvent.objects.create(
        subject_type="server", server_id=one.id, from_state="RUNNING", to_state="DISCONNECTED", actor="liveness"
    )
    Attempt.objects.filter(pk=attempt["id"]).update(state="RESUBMITTED", finished_at=clocked_now())
    count_history()
    (point,) = [point for point in read_history(HOUR).points if point.lost]
    assert (point.lost, point.moved) == (1, 1)


def test_what_waits_and_the_slots_are_looked_at_each_time(worker, submit, clock):
    one = worker(max_concurrent=4)
    submit(), submit(), submit()
    one.hold()
    count_history()
    point = read_history(HOUR).points[-1]
    assert (point.waiting, point.running, point.slots_used, point.slots_free) == (2, 1, 1, 3)
    Server.objects.update(cordoned_by="somebody")
    count_history()
    assert read_history(HOUR).points[-1].slots_free == 0


def test_what_is_not_counted_yet_is_kept_past_its_retention(worker, submit, clock, settings):
    settings.JOBS = {**getattr(settings, "JOBS", {}), "JOB_RETENTION": 1}
    one = worker()
    run_jobs(one, submit)
    count_history()
    clock.advance(5)
    one.beat()
    run_jobs(one, submit)
    clock.advance(5)
    retention.prune_old_rows()
    count_history()
    assert ended() == {"completed": 2}
    clock.advance(4000)  # for an hour it waits for open transactions, also those in other databases
    count_history()
    retention.prune_old_rows()
    count_history()
    assert not WorkerJob.objects.exists()
    assert ended(WINDOWS["24h"]) == {"completed": 2}


def test_ends_are_found_by_an_index_however_many_jobs_there_are(worker, submit, clock):
    run_jobs(worker(), submit)
    count_history()
    with connection.cursor() as cursor:
        cursor.execute("set local enable_seqscan = off")
        cursor.execute("explain select from jobs_workerjob j where j.finished_at >= now() and j.finished_at < now()")
        assert "job_ended" in "\n".join(row[0] for row in cursor.fetchall())


def clocked_now():
    with connection.cursor() as cursor:
        cursor.execute("select clock_timestamp()")
        return cursor.fetchone()[0]


@pytest.fixture
def clocked(committed):
    """Return the clock of tests on committed data."""
    return Clock()


@pytest.fixture
def submit_committed(committed):
    client = Caller(tokens.create_token("a client", "client"))

    def submit(**job):
        assert client.post("/jobs", {"action": {"type": "script", "command": "true"}, **job}).status_code == 201

    return submit


@contextmanager
def under_way(threads, count):
    """Keep so many transactions with a number open."""
    numbered, may_end = Semaphore(0), Event()

    def go_on():
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("select pg_current_xact_id()")
            numbered.release()
            assert may_end.wait(60)

    futures = [threads(go_on) for _ in range(count)]
    for _ in futures:
        assert numbered.acquire(timeout=60)
    yield
    may_end.set()
    for future in futures:
        future.result(timeout=60)


@contextmanager
def slow_end(attempt, threads):
    """End a job in a transaction that commits late. Yield a function that commits it."""
    began, may_commit = Event(), Event()

    def end():
        with transaction.atomic():
            now = clocked_now()
            Attempt.objects.filter(pk=attempt["id"]).update(state="COMPLETED", finished_at=now)
            WorkerJob.objects.update(state="COMPLETED", finished_at=now, attempt_id=None)
            began.set()
            assert may_commit.wait(60)

    future = threads(end)
    assert began.wait(60)

    def commit():
        may_commit.set()
        future.result(timeout=60)

    try:
        yield commit
    finally:
        may_commit.set()
