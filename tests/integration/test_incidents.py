"""Each of these went wrong once."""

import uuid

import pytest
from django.db import DatabaseError

from jobs.models import Attempt, LateReport, WorkerJob
from jobs.services import submission
from jobs.services.check import CheckFailed, check
from liveness.models import Brake, Server, ServerEvent
from liveness.models import Clock as ClockRow
from liveness.services import detection
from tests.integration.test_hot_paths import committed, submit_many, threads

__all__ = ["committed", "threads"]


def state(worker):
    return Server.objects.get(pk=worker.id).state


def disconnected():
    return ServerEvent.objects.filter(to_state="DISCONNECTED").count()


def test_a_longer_check_interval_after_a_restart_disconnects_nobody_who_beats(worker, clock, settings):
    clock.freeze()
    ClockRow.objects.update(witnessed=True)
    one = worker()
    for _ in range(6):
        clock.step(10)
        one.beat()
        check()
    settings.LIVENESS = {"INTERVAL": 60, "TIMEOUT": 150}
    for _ in range(23):
        clock.step(3)
        one.beat()
    check()
    assert state(one) == "RUNNING"


def test_a_brake_that_cannot_be_judged_lets_nobody_go(worker, clock, monkeypatch):
    def broken():
        raise DatabaseError("deadlock detected")

    for number in range(6):
        worker(name=f"w{number}")
    clock.advance(50)
    monkeypatch.setattr(detection, "brake", broken)
    with pytest.raises(CheckFailed):
        check()
    assert disconnected() == 0


def test_many_checks_of_one_tick_let_go_after_the_longest_hold_what_one_lets_go(worker, clock):
    for number in range(20):
        worker(name=f"w{number}")
    clock.advance(50)
    check()
    assert Brake.objects.exists()
    clock.advance(301)
    for _ in range(5):
        check()
    assert disconnected() == 2


def test_a_released_brake_engages_anew_when_more_fall_silent(worker, clock, api):
    fleet = [worker(name=f"w{number}") for number in range(9)]
    clock.advance(46)
    for one in fleet[3:]:
        one.beat()
    check()
    api("operator").post("/brake/release", {"reason": "those are dead"})
    check()
    assert disconnected() == 3
    clock.advance(44)
    check()
    clock.advance(3)
    check()
    assert disconnected() == 3


@pytest.mark.parametrize("why", ["cordon", "stale", "maintenance"])
def test_a_claim_whose_answer_was_lost_is_answered_though_the_worker_gets_nothing_new(worker, submit, clock, api, why):
    submit(), submit()
    one, operator, request = worker(), api("operator"), str(uuid.uuid4())
    (attempt,) = one.claim(1, request_id=request)
    match why:
        case "cordon":
            operator.post(f"/servers/{one.id}/cordon", {"note": "x"})
        case "maintenance":
            operator.post("/maintenance/enter", {"note": "x"})
        case _:
            clock.advance(10)
    assert one.claim(1, request_id=request) == [attempt]
    assert one.post(f"/servers/{one.id}/claims", {"limit": 1}).status_code == 409


def test_a_reactivated_server_that_lists_nothing_in_a_beat_keeps_what_it_holds(worker, submit, settings, api):
    settings.LIVENESS = {"REACTIVATE_ON_HEARTBEAT": True}
    submit()
    one = worker()
    attempt = one.hold()
    api("operator").post(f"/servers/{one.id}/disconnect", {"note": "x"})
    assert one.beat(state="RUNNING").json()["state"] == "RUNNING"
    assert Attempt.objects.get(pk=attempt["id"]).state == "RUNNING"


def test_a_drain_that_the_worker_may_not_have_heard_of_gives_nothing_away(worker, submit, clock, api):
    submit()
    one = worker()
    one.hold()
    api("operator").post(f"/servers/{one.id}/drain", {"note": "x", "deadline_seconds": 1})
    clock.advance(2)
    one.beat()  # stored; the answer, the first to tell of the drain, may be lost
    clock.advance(44.5)
    check()
    assert (state(one), Attempt.objects.get().state) == ("RUNNING", "RUNNING")


def test_a_terminating_worker_is_told_to_stop_its_code_before_its_jobs_move(worker, submit, clock):
    submit()
    one = worker()
    one.hold()
    one.beat(state="TERMINATING")
    for _ in range(29):
        clock.advance(10)
        told = one.beat(state="TERMINATING").json()["fence_after_seconds"]
    clock.advance(46)
    check()
    assert Attempt.objects.get().state == "RESUBMITTED"
    assert told < 46


def test_a_clock_that_was_set_back_makes_no_silent_worker_fresh(worker, submit, clock, api):
    submit()
    one = worker()
    clock.advance(30)
    clock.step(-3600)
    assert one.post(f"/servers/{one.id}/claims", {"limit": 1}).json()["code"] == "heartbeat_stale"
    assert api("viewer").get(f"/servers/{one.id}").json()["fresh"] is False


def test_the_same_late_report_is_kept_once(worker, submit, clock):
    submit()
    one = worker(config={"worker_task_restart_strategy": "IMMEDIATELY"})
    attempt = one.hold()
    clock.advance(46)
    check()
    for output in (1, 1, 2, 1):
        one.complete(attempt, output)
    assert [late.body["output"] for late in LateReport.objects.all()] == [1, 2]


def test_a_key_whose_job_is_pruned_at_that_moment_is_no_fault(submit, monkeypatch):
    class Racing:
        def rows(self, *names, **params):
            found = submission_sql.rows(*names, **params)
            WorkerJob.objects.all().delete()
            return found

    submit(key="k")
    submission_sql = submission.sql
    monkeypatch.setattr(submission, "sql", Racing())
    answer = submit.client.post("/jobs", {"action": {"type": "script", "command": "true"}, "key": "k"})
    assert (answer.status_code, answer.json()["code"]) == (503, "try_again")


def test_heartbeats_and_reports_of_many_attempts_never_wait_for_each_other_in_a_ring(committed, threads):
    one = committed(max_concurrent=2000)
    wrong = []

    def beats(running):
        for _ in range(12):
            answer = one.beat(running=running)
            if answer.status_code != 200:
                wrong.append(answer.content)

    def ends(held):
        for first in range(0, len(held), 100):
            one.report(*[{"attempt": attempt, "event": "COMPLETED"} for attempt in held[first : first + 100]])

    for _ in range(4):
        submit_many(600)
        held = [attempt["id"] for attempt in one.claim(limit=600)]
        one.report(*[{"attempt": attempt, "event": "STARTED"} for attempt in held])
        running = [{"attempt": attempt, "pid": 1} for attempt in reversed(held)]
        for done in [threads(beats, running), threads(ends, held)]:
            done.result(60)
    assert wrong == []
