"""Conditions of statements that no other test covers: each test fails if one condition is removed."""

import pytest
from django.db import transaction

from jobs.models import Attempt, Execution, WorkerJob
from jobs.services import recovery, sweep
from jobs.services.liveness_check import check_liveness
from liveness.models import Server
from tests.integration.races.test_hot_paths import run, someone_waits, submit_many
from tests.support.clock import CLOCK, Clock

PAUSED_CLOCK = """
    create or replace function test_clock.clock_timestamp() returns timestamptz language plpgsql volatile as $$
    begin
        if current_setting('test.pauses', true) = 'on' then
            perform pg_advisory_xact_lock_shared(4711);
        end if;
        return (select coalesce(stands_at, pg_catalog.clock_timestamp()) + by from test_clock.shift);
    end $$;
"""


@pytest.mark.parametrize("strategy", ["IMMEDIATELY", "AFTER_TERMINATION_GRACE_PERIOD"])
def test_attempts_of_a_disconnected_server_move_only_after_its_fence(worker, submit, api, clock, strategy):
    submit()
    config = {"worker_task_restart_strategy": strategy, "termination_grace_period_seconds": 100}
    one = worker(config=config)
    one.hold()
    fence = one.beat(state="RUNNING").json()["fence_after_seconds"]
    clock.advance(1)
    assert api("operator").post(f"/servers/{one.id}/disconnect", {"note": "a test"}).status_code == 200
    clock.advance(fence + 45 * 0.2 - 1.002)
    check_liveness()
    assert Attempt.objects.get().state == "RUNNING"
    clock.advance(0.003)
    check_liveness()
    assert Attempt.objects.get().state == "RESUBMITTED"


def test_a_heartbeat_that_is_being_stored_keeps_its_attempt_from_the_sweep(committed, threads):
    """The lock on the attempt, and the second check of it, in `is_overdue`."""
    submit_many(1)
    one = committed()
    attempt = one.hold()["id"]
    Clock().advance(301)
    one.beat()
    with transaction.atomic():
        one.beat(running=[{"attempt": attempt}])
        swept = threads(sweep.end_overdue_attempts)
        if not someone_waits(deadline=1):
            assert swept.result(30) == {}
    assert swept.result(30) == {}
    assert Attempt.objects.get().state == "RUNNING"


def test_code_that_begins_during_its_recovery_is_not_requeued_as_claimed(committed, threads, caplog):
    """`j.state = a.state` in `recover_attempts`."""
    submit_many(1)
    one = committed()
    attempt = one.hold(running=False)
    Clock().advance(46)
    Server.objects.update(state="DISCONNECTED", state_actor="liveness")

    def recover():
        run("set test.pauses = 'on'")
        return recovery.recover_attempts()

    run(PAUSED_CLOCK)
    try:
        with transaction.atomic():
            run("select pg_advisory_xact_lock(4711)")
            recovered = threads(recover)  # it has read a claimed attempt and has not locked its job yet
            assert someone_waits()
            run("update jobs_workerjob set state = 'RUNNING'")
            run("update jobs_attempt set state = 'RUNNING', started_at = pg_catalog.clock_timestamp()")
        assert "REQUEUED" not in recovered.result(30)
        assert "A sweep failed" not in caplog.text  # otherwise the database trigger would refuse the write
    finally:
        run(CLOCK)
    assert Attempt.objects.get(pk=attempt["id"]).state == "RUNNING"


def test_a_lost_step_of_an_execution_that_is_being_cancelled_is_not_run_again(worker, submit, api, clock):
    """`is_stopped` in `end_attempts`: much time may pass between the two transactions of a cancellation."""
    client = api("client")
    step = {"key": "a", "action": {"type": "script", "command": "true"}}
    assert client.post("/executions", {"name": "x", "steps": [step]}).status_code == 201
    one = worker(config={"worker_task_restart_strategy": "IMMEDIATELY"})
    one.hold()
    Execution.objects.update(state="CANCELLING", cancel_requested_at="2026-01-01T00:00:00Z")
    one.beat(state="ERROR")
    recovery.recover_attempts()
    assert WorkerJob.objects.get().state == "CANCELLED"
