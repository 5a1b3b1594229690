"""Situations that have failed in the past."""

import threading
import uuid
from concurrent.futures import wait
from contextlib import suppress

import pytest
from django.db import DatabaseError, connection, transaction

from controlplane.core.statements import Statement
from jobs.models import Attempt, LateReport, WorkerJob
from jobs.services import claiming, recovery, sweep
from jobs.services.liveness_check import CheckFailed, check_liveness
from jobs.sql.rows.submission import SubmittedJob
from liveness.models import Brake, Server, ServerEvent
from liveness.models import Clock as ClockRow
from liveness.services import detection, tokens
from tests.integration.races import test_hot_paths as hot
from tests.integration.races.test_hot_paths import run, submit_many, waiting
from tests.support.clock import Clock

lost = hot.lost
AT_ONCE = {"worker_task_restart_strategy": "IMMEDIATELY"}


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
        check_liveness()
    settings.LIVENESS = {"INTERVAL": 60, "TIMEOUT": 150}
    for _ in range(23):
        clock.step(3)
        one.beat()
    check_liveness()
    assert state(one) == "RUNNING"


def test_a_brake_that_cannot_be_judged_lets_nobody_go(worker, clock, monkeypatch):
    def broken():
        raise DatabaseError("deadlock detected")

    for number in range(6):
        worker(name=f"w{number}", old=True)
    clock.advance(50)
    monkeypatch.setattr(detection, "judge_brake", broken)
    with pytest.raises(CheckFailed):
        check_liveness()
    assert disconnected() == 0


def test_many_checks_of_one_tick_let_go_after_the_longest_hold_what_one_lets_go(worker, clock):
    for number in range(20):
        worker(name=f"w{number}", old=True)
    clock.advance(50)
    check_liveness()
    assert Brake.objects.exists()
    clock.advance(301)
    for _ in range(5):
        check_liveness()
    assert disconnected() == 2


def test_a_released_brake_engages_again_when_more_servers_fall_silent(worker, clock, api):
    fleet = [worker(name=f"w{number}", old=True) for number in range(9)]
    clock.advance(46)
    for one in fleet[3:]:
        one.beat()
    check_liveness()
    api("operator").post("/brake/release", {"reason": "those are dead"})
    check_liveness()
    assert disconnected() == 3
    clock.advance(44)
    check_liveness()
    clock.advance(3)
    check_liveness()
    assert disconnected() == 3


@pytest.mark.parametrize("why", ["cordon", "stale", "maintenance"])
def test_a_repeated_claim_is_answered_even_if_the_worker_gets_no_new_job(worker, submit, clock, api, why):
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


def test_a_drain_that_the_worker_may_not_know_moves_nothing(worker, submit, clock, api):
    submit()
    one = worker()
    one.hold()
    api("operator").post(f"/servers/{one.id}/drain", {"note": "x", "deadline_seconds": 1})
    clock.advance(2)
    one.beat()  # recorded, but the response with the drain may be lost
    clock.advance(44.5)
    check_liveness()
    assert (state(one), Attempt.objects.get().state) == ("RUNNING", "RUNNING")


def test_a_terminating_worker_must_stop_its_code_before_its_jobs_move(worker, submit, clock):
    submit()
    one = worker()
    one.hold()
    one.beat(state="TERMINATING")
    for _ in range(29):
        clock.advance(10)
        fence_after = one.beat(state="TERMINATING").json()["fence_after_seconds"]
    clock.advance(46)
    check_liveness()
    assert Attempt.objects.get().state == "RESUBMITTED"
    assert fence_after < 46


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
    check_liveness()
    for output in (1, 1, 2, 1):
        one.complete(attempt, output)
    assert [late.body["output"] for late in LateReport.objects.all()] == [1, 2]


def test_a_key_whose_job_is_pruned_at_that_moment_is_no_fault(submit, monkeypatch):
    calls = []

    fetch_rows = Statement.fetch_rows

    def prune_afterwards(statement, **params):
        rows = fetch_rows(statement, **params)
        if statement.row is SubmittedJob:
            calls.append(rows)
        if len(calls) == 2:  # the first call sees the known key, the second one is the last before the look-up
            WorkerJob.objects.all().delete()
        return rows

    submit(key="k")
    monkeypatch.setattr(Statement, "fetch_rows", prune_afterwards)
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


@pytest.mark.parametrize("end", ["COMPLETED", "FAILED", "CANCELLED"])
def test_a_finished_job_is_never_re_run(worker, submit, clock, end):
    job, request = submit(max_retries=3, retry_on=["OTHER"]), str(uuid.uuid4())
    one = worker(config=AT_ONCE)
    (attempt,) = one.claim(1, request_id=request)
    one.start(attempt)
    if end == "CANCELLED":
        submit.client.post(f"/jobs/{job['id']}/cancel", {})
    more = {"COMPLETED": {"output": 1}, "FAILED": {"error": {"code": "X"}}}.get(end, {})
    assert one.report({"attempt": attempt["id"], "event": end, **more})[0]["accepted"]
    finished = submit.client.get(f"/jobs/{job['id']}").json()
    assert one.claim(request_id=request) == []
    for _ in range(3):  # its worker is lost and retired
        clock.advance(400)
        check_liveness()
        sweep.run_sweep()
    assert state(one) == "INACTIVE"
    assert worker(name="heir").claim() == []
    assert submit.client.get(f"/jobs/{job['id']}").json() == finished
    assert finished["state"] == end and len(finished["attempts"]) == 1


@pytest.mark.parametrize("first", ["the loser", "the heir", "both at once"])
def test_two_workers_cannot_finish_one_job(committed, threads, first):
    submit_many(1)
    loser = committed(name="loser", config=AT_ONCE)
    held = loser.hold()
    Clock().advance(46)
    heir = committed(name="heir")
    check_liveness()
    inherited = heir.hold()
    start = threading.Barrier(2)

    def complete(one, attempt):
        if first == "both at once":
            start.wait(10)
        return one.complete(attempt, one.registration["id"])

    pairs = [(loser, held), (heir, inherited)]
    if first == "both at once":
        results = [future.result(10) for future in [threads(complete, *pair) for pair in pairs]]
    else:
        results = [complete(*pair) for pair in (pairs if first == "the loser" else reversed(pairs))]
    accepted = {result["attempt"]: (result["accepted"], result["code"]) for result in results}
    assert accepted == {held["id"]: (False, "attempt_superseded"), inherited["id"]: (True, None)}
    assert WorkerJob.objects.values_list("state", "output").get() == ("COMPLETED", heir.id)
    assert [str(late.attempt_id) for late in LateReport.objects.all()] == [held["id"]]


# A view of the clock that can block its readers: a sweep that reads it has begun its search with an older snapshot,
# and has not locked the rows that it will write.
COLUMNS = ", ".join(field.column for field in ClockRow._meta.fields if field.column != "reading")
SLOW = f"""
    create schema slow;
    create function slow.waited(reading float8) returns float8 language plpgsql as
        $$ begin perform pg_advisory_lock_shared(42), pg_advisory_unlock_shared(42); return reading; end $$;
    create view slow.liveness_clock as select slow.waited(reading) as reading, {COLUMNS} from public.liveness_clock
"""  # noqa: S608


def slowly(step):
    run("set search_path = slow, public, test_clock, pg_catalog")
    try:
        return step()
    finally:
        run("reset search_path")  # the connection returns to its pool


@pytest.mark.parametrize("completed", [True, False], ids=["completed", "left alone"])
@pytest.mark.parametrize("step", ["recovery of the lost", "sweep of the stale"])
def test_a_completion_between_search_and_write_wins(committed, threads, monkeypatch, step, completed):
    # Only one try: otherwise it might win because a trigger refused the write and the sweep ran again.
    monkeypatch.setattr(Statement, "sweep_rows", lambda self, **params: self.fetch_rows(only=None, **params))
    submit_many(1)
    one = committed(config=AT_ONCE)
    attempt = one.hold()
    if step == "recovery of the lost":
        one.beat(state="ERROR")
    else:
        Clock().advance(301)
        one.beat()
    run(SLOW)
    try:
        run("select pg_advisory_lock(42)")
        future = threads(
            slowly, recovery.recover_attempts if step == "recovery of the lost" else sweep.end_overdue_attempts
        )
        waiting()
        assert not completed or one.complete(attempt, 42)["accepted"]
    finally:
        run("select pg_advisory_unlock_all()")
        wait([future])
        run("drop schema slow cascade")
    assert future.result() == ({} if completed else {"RESUBMITTED": 1})
    expected = ("COMPLETED", 42, 0) if completed else ("PENDING", None, 1)
    assert WorkerJob.objects.values_list("state", "output", "resubmissions").get() == expected
    assert Attempt.objects.get().state == ("COMPLETED" if completed else "RESUBMITTED")


def test_a_crash_between_marking_a_server_and_recovering_its_jobs_orphans_nothing(lost, threads):
    with transaction.atomic():
        run("lock table jobs_attempt in access exclusive mode")
        interrupted = threads(check_liveness)
        while not interrupted.done():  # after a lost session, the step begins again with a new one
            with suppress(AssertionError):  # no statement waits any more
                run("select pg_terminate_backend(%s, 10000)", [waiting()])
    with pytest.raises((CheckFailed, DatabaseError)):
        interrupted.result(20)
    assert state(lost) == "DISCONNECTED"
    assert set(Attempt.objects.values_list("state", flat=True)) == {"RUNNING", "CLAIMED"}
    hot.assert_finished_by_one_clean_check()


def test_8_connections_claim_20_000_jobs_and_none_twice(committed, threads):
    (pattern,) = submit_many(1)
    run(
        "insert into jobs_workerjob (owner_id, fingerprint, action, required_tags)"
        " select owner_id, fingerprint, action, required_tags from jobs_workerjob, generate_series(2, 20000)"
        " where id = %s",
        [pattern],
    )
    # One heartbeat is enough, and stays fresh for as long as a slow machine may take.
    fields = {"max_concurrent": 20_000, "config": {"heartbeat_interval_seconds": 60, "timeout_seconds": 300}}
    workers = [tokens.read_server_token(committed(name=f"w{n}", **fields).token) for n in range(8)]
    start = threading.Barrier(8)

    def drain(token):
        start.wait(10)
        taken, empty = [], 0
        while empty < 3:
            jobs = [attempt.job for attempt in claiming.claim_jobs(token, 200)[0]]
            taken += jobs
            empty = 0 if jobs else empty + 1
        return taken

    connection.close()  # the pool has eight connections, and all are needed
    shares = [future.result(60) for future in [threads(drain, token) for token in workers]]
    taken = [job for share in shares for job in share]
    assert len(taken) == len(set(taken)) == Attempt.objects.count() == 20_000
    assert WorkerJob.objects.filter(state="CLAIMED", attempt_count=1).count() == 20_000
    assert min(map(len, shares)) > 0, "one had nothing: they were not at it together"
