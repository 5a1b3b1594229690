"""The database's clock is set back, as by a failover: waiting jobs and triggers follow it."""

from datetime import datetime, timedelta

import pytest
from django.db import connection

from jobs.models import Trigger, WorkerJob
from jobs.services import evaluations
from jobs.services.liveness_check import check_liveness
from liveness.models import Clock as ClockRow
from liveness.models import ServerEvent
from tests.support.executions import SCRIPT, step

pytestmark = pytest.mark.django_db

INTERVAL, HOUR = 10, 3600


@pytest.fixture
def live(clock):
    """Let observed time pass, with a check in each interval."""
    ClockRow.objects.update(witnessed=True)
    check_liveness()

    def live(seconds, *beating):
        for _ in range(int(seconds // INTERVAL)):
            clock.step(INTERVAL)
            for worker in beating:
                worker.beat()
            check_liveness()

    return live


def now():
    with connection.cursor() as cursor:
        cursor.execute("select clock_timestamp()")
        return cursor.fetchone()[0]


@pytest.mark.parametrize("back", [60, HOUR, 24 * HOUR])
def test_a_job_that_waits_is_had_by_the_next_check(worker, submit, clock, live, back):
    one = worker(max_concurrent=9)
    live(30, one)
    submit()
    due = submit(available_at=(now() + timedelta(seconds=5)).isoformat())
    live(INTERVAL, one)
    submit()
    clock.step(-back)
    one.beat()
    assert one.claim(limit=9) == []
    live(INTERVAL, one)
    claimed = [attempt["job"]["id"] for attempt in one.claim(limit=9)]
    assert len(claimed) == 3
    assert due["id"] in claimed
    event = ServerEvent.objects.get(action="clock_set_back")
    assert event.actor == "liveness"


def test_what_a_job_that_was_interrupted_or_blocked_waits_for_is_not_hidden_either(worker, begin, submit, clock, live):
    one = worker(max_concurrent=9)
    live(30, one)
    run = begin(step("a"), step("b", "a"))
    submit()
    held = {attempt["job"]["step"]: attempt for attempt in one.claim(limit=9)}
    clock.step(-HOUR)
    live(INTERVAL, one)
    one.report({"attempt": held["a"]["id"], "event": "STARTED"}, {"attempt": held["a"]["id"], "event": "COMPLETED"})
    one.report({"attempt": held[None]["id"], "event": "RELEASED", "reason": "shutdown"})
    assert len(one.claim(limit=9)) == 2
    assert run.states()["b"] == "CLAIMED"


def test_a_delay_is_as_long_as_it_was_and_no_shorter(worker, submit, clock, live):
    one = worker()
    live(30, one)
    submit(max_retries=1, retry_delay_seconds=100)
    attempt = one.hold()
    one.report({"attempt": attempt["id"], "event": "FAILED", "error": {"code": "x", "message": ""}})
    delayed_until = WorkerJob.objects.get().available_at
    left = (delayed_until - now()).total_seconds()
    clock.step(-HOUR)
    live(INTERVAL, one)
    then = (WorkerJob.objects.get().available_at - now()).total_seconds()
    assert left - INTERVAL <= then <= left + 1.5 * INTERVAL


def test_a_moment_that_a_client_chose_and_that_has_not_come_stays(worker, submit, clock, live):
    one = worker()
    live(30, one)
    at = now() + timedelta(seconds=60)
    submit(available_at=at.isoformat())
    clock.step(-HOUR)
    soon = now() + timedelta(minutes=30)
    submit(available_at=soon.isoformat())
    live(3 * INTERVAL, one)
    assert sorted(WorkerJob.objects.values_list("available_at", flat=True)) == [soon, at]


def test_jobs_follow_once_for_each_time_the_clock_is_set_back(worker, submit, clock, live):
    one = worker()
    live(30, one)
    submit()
    clock.step(-HOUR)
    live(3 * INTERVAL, one)
    once = WorkerJob.objects.get().available_at
    check_liveness()
    assert WorkerJob.objects.get().available_at == once
    assert ServerEvent.objects.filter(action="clock_set_back").count() == 1


def test_a_step_forward_and_ordinary_checks_move_nothing(worker, submit, clock, live):
    one = worker()
    submit()
    before = WorkerJob.objects.get().available_at
    live(3 * INTERVAL, one)
    clock.step(HOUR)
    live(3 * INTERVAL, one)
    assert WorkerJob.objects.get().available_at == before
    assert not ServerEvent.objects.filter(action="clock_set_back").exists()


@pytest.fixture
def trigger(api, clock):
    def trigger(start, **schedule):
        clock.step((datetime.fromisoformat(start) - now()).total_seconds())
        body = {"name": "one", "action": SCRIPT, "execution": {"name": "r", "steps": [step("a")]}, **schedule}
        answer = api("operator").post("/triggers", body)
        assert answer.status_code == 201, answer.json()
        check_liveness()

    return trigger


def count_evaluations(worker, live, seconds):
    """Return how many evaluations begin in so many seconds, if each ends at once."""
    count = 0
    for _ in range(seconds // INTERVAL):
        live(INTERVAL, worker)
        if evaluations.evaluate_due_triggers():
            worker.complete(worker.hold(), {"fire": False})
            count += 1
    return count


@pytest.mark.parametrize("back", [60, 2 * HOUR, 24 * HOUR])
@pytest.mark.parametrize("schedule", [{"interval_seconds": 60}, {"cron": "* * * * *"}], ids=["interval", "cron"])
def test_evaluations_each_minute_continue(worker, clock, live, trigger, back, schedule):
    trigger("2030-06-02T12:00:00Z", **schedule)
    one = worker()
    assert count_evaluations(one, live, 200) == 3
    clock.step(-back)
    assert count_evaluations(one, live, 300) in (4, 5)


@pytest.mark.exhaustive
def test_a_time_of_day_does_not_come_twice_though_the_clock_does(worker, clock, live, trigger):
    trigger("2030-06-02T01:59:00Z", cron="0 2 * * *")
    one = worker()
    assert count_evaluations(one, live, 100) == 1
    clock.step(-HOUR)
    assert count_evaluations(one, live, HOUR + 60) == 0
    assert Trigger.objects.get().next_slot_at.isoformat() == "2030-06-03T02:00:00+00:00"


def test_a_future_time_of_day_is_not_missed_if_the_clock_was_years_ahead(worker, clock, live, trigger):
    trigger("2030-06-02T01:59:00Z", cron="0 2 * * *")
    one = worker()
    clock.step(365 * 24 * HOUR)
    assert count_evaluations(one, live, 30) == 1
    clock.step(-365 * 24 * HOUR)
    assert count_evaluations(one, live, 120) == 1
