"""The recovery sweep ends attempts that are stuck for other reasons than a lost server. Ages are in observed time."""

from datetime import timedelta

import pytest
from django.db import DatabaseError
from django.utils import timezone

from controlplane.core.model_fields import ClockTimestamp, ObservedNow
from jobs.models import Attempt, WorkerJob
from jobs.services import sweep
from liveness.models import Instance, Server
from liveness.services import detection

CLAIMED_STALE, RUNNING_STALE, UNMATCHED, CANCEL = 120, 300, 30, 60

NOTHING = {
    step: {}
    for step in ("holds", "recovered", "overdue", "expired", "unmatched", "timed_out", "late", "repaired", "limits")
}


@pytest.fixture
def read_job(submit):
    return lambda job: submit.client.get(f"/jobs/{job['id']}").json()


def pass_time(clock, seconds, *workers, step=20, **fields):
    """Let time pass with heartbeats of these servers that list only the attempts in `fields`."""
    while seconds > 0:
        clock.advance(min(step, seconds))
        seconds -= step
        for one in workers:
            one.beat(**fields)


def ends(job):
    return [entry["state"] for entry in job["timeline"] if entry["attempt"] is not None]


@pytest.mark.parametrize(("age", "swept"), [(CLAIMED_STALE - 1, False), (CLAIMED_STALE + 1, True)])
def test_a_claim_without_a_sign_of_life_is_requeued(worker, submit, read_job, clock, age, swept):
    job, one = submit(), worker()
    attempt = one.hold(running=False)
    pass_time(clock, age, one)
    assert sweep.run_sweep()["overdue"] == ({"REQUEUED": 1} if swept else {})
    assert read_job(job)["state"] == ("PENDING" if swept else "CLAIMED")
    if swept:
        assert attempt["id"] in one.beat(claimed=[attempt["id"]]).json()["lost"]


@pytest.mark.parametrize(
    ("on_worker_lost", "end", "state"), [("RESUBMIT", "RESUBMITTED", "PENDING"), ("FAIL", "FAILED", "FAILED")]
)
def test_a_runner_without_a_sign_of_life_goes_by_its_policy(
    worker, submit, read_job, clock, on_worker_lost, end, state
):
    job, one = submit(on_worker_lost=on_worker_lost), worker()
    one.hold()
    pass_time(clock, RUNNING_STALE - 1, one)
    assert sweep.run_sweep()["overdue"] == {}
    pass_time(clock, 2, one)
    assert sweep.run_sweep()["overdue"] == {end: 1}
    job = read_job(job)
    assert job["state"] == state
    error = job["attempts"][0]["error"]
    assert error["code"] == "WORKER_CRASHED"
    assert {"server", "host", "pid", "threshold", "started_at", "detected_at"} <= set(error)
    assert error["threshold"] == RUNNING_STALE


@pytest.mark.parametrize("running", [True, False])
def test_a_sign_of_life_of_this_attempt_keeps_it(worker, submit, clock, running):
    submit()
    one = worker()
    attempt = one.hold(running=running)
    fields = {"running": [{"attempt": attempt["id"], "pid": 7}]} if running else {"claimed": [attempt["id"]]}
    pass_time(clock, 1000, one, **fields)
    assert sweep.run_sweep()["overdue"] == {}
    assert Attempt.objects.get().pid == (7 if running else None)


def test_the_clock_of_an_attempt_begins_with_its_own_claim_and_start(worker, submit, clock):
    submit()
    one = worker()
    first = one.hold()
    pass_time(clock, RUNNING_STALE - 10, one)
    one.report({"attempt": first["id"], "event": "RELEASED", "reason": "a test"})
    one.hold()
    pass_time(clock, 20, one)
    assert sweep.run_sweep()["overdue"] == {}


def test_under_never_a_silent_runner_stays(worker, submit, clock):
    submit()
    one = worker(config={"worker_task_restart_strategy": "NEVER"})
    one.hold()
    pass_time(clock, 2 * RUNNING_STALE, one)
    assert sweep.run_sweep()["overdue"] == {}


@pytest.mark.parametrize("running", [True, False])
def test_switched_off_the_stale_stay_until_an_operator_acts(worker, submit, read_job, clock, settings, running):
    settings.JOBS = {"AUTO_REQUEUE_STALE_CLAIMED": False, "AUTO_FAIL_STALE_RUNNING": False}
    job, one = submit(), worker()
    one.hold(running=running)
    pass_time(clock, 2 * RUNNING_STALE, one)
    assert sweep.run_sweep()["overdue"] == {}
    (row,) = sweep.list_stale_attempts(CLAIMED_STALE, RUNNING_STALE)
    assert str(row.job) == job["id"]
    if running:
        assert sweep.fail_stale_running(RUNNING_STALE, "operator:ann") == 1
        assert (read_job(job)["state"], read_job(job)["error"]["code"]) == ("FAILED", "WORKER_CRASHED")
    else:
        assert sweep.requeue_stale_claimed(CLAIMED_STALE, "operator:ann") == 1
        assert read_job(job)["state"] == "PENDING"
    assert Attempt.objects.get().ended_by == "operator:ann"
    assert sweep.list_stale_attempts(CLAIMED_STALE, RUNNING_STALE) == []


@pytest.mark.parametrize("begins", ["before", "after"])
def test_code_is_not_stale_after_an_outage_of_the_control_plane(worker, submit, clock, settings, begins):
    settings.JOBS = {**settings.JOBS, "RUNNING_STALE_AFTER": 5}
    submit()
    one = worker()
    held = one.hold() if begins == "before" else None
    clock.step(20)
    one.beat(running=[{"attempt": held["id"]}] if held else [])  # later than the next check will count
    detection.advance_clock()  # no heartbeat has proved that heartbeats arrive, so observed time does not move
    held = held or one.hold()
    one.beat(running=[{"attempt": held["id"]}])
    assert sweep.run_sweep()["overdue"] == {}
    assert Attempt.objects.get().state == "RUNNING"
    clock.advance(30)
    one.beat()
    assert sweep.run_sweep()["overdue"] == {"RESUBMITTED": 1}


@pytest.mark.parametrize(("call", "running"), [(sweep.requeue_stale_claimed, True), (sweep.fail_stale_running, False)])
def test_an_operators_sweep_touches_its_own_kind_and_older_ones_only(worker, submit, clock, call, running):
    submit(), submit()
    one = worker()
    one.hold(running=running)
    one.hold(running=not running)
    pass_time(clock, 50, one)
    assert call(51, "operator:ann") == 0
    assert call(49, "operator:ann") == 1
    assert Attempt.objects.filter(finished_at=None).get().state == ("RUNNING" if running else "CLAIMED")


@pytest.mark.parametrize(("age", "ended"), [(10 + 45 / 4 - 1, False), (10 + 45 / 4 + 1, True)])
def test_a_job_over_its_timeout_fails_a_quarter_of_the_servers_timeout_later(
    worker, submit, read_job, clock, age, ended
):
    job, one = submit(timeout_seconds=10), worker()
    one.hold()
    pass_time(clock, age, one)
    assert sweep.run_sweep()["overdue"] == ({"FAILED": 1} if ended else {})
    assert (read_job(job)["error"] or {}).get("code") == ("STEP_TIMEOUT" if ended else None)


def test_a_timeout_ends_the_job_of_a_lost_server_under_never_too(worker, submit, read_job, clock):
    job, one = submit(timeout_seconds=100), worker(config={"worker_task_restart_strategy": "NEVER"})
    one.hold()
    one.beat(state="ERROR")
    clock.advance(120)
    assert sweep.run_sweep()["overdue"] == {"FAILED": 1}
    assert read_job(job)["error"]["code"] == "STEP_TIMEOUT"


def request_cancel(job):
    WorkerJob.objects.filter(pk=job["id"]).update(
        cancel_requested_at=ClockTimestamp(), cancel_requested_observed=ObservedNow()
    )


@pytest.mark.parametrize("running", [True, False])
def test_a_cancellation_that_the_worker_does_not_confirm_is_done_for_it(worker, submit, read_job, clock, running):
    job, one = submit(), worker()
    one.hold(running=running)
    request_cancel(job)
    pass_time(clock, CANCEL - 1, one)
    assert sweep.run_sweep()["overdue"] == {}
    pass_time(clock, 2, one)
    assert sweep.run_sweep()["overdue"] == {"CANCELLED": 1}
    assert read_job(job)["state"] == "CANCELLED"


def test_a_job_is_expired_after_its_good_until_and_not_before(submit, read_job, clock, worker):
    job, one = submit(), worker()
    WorkerJob.objects.update(good_until=timezone.now() + timedelta(seconds=100))
    clock.advance(90)
    assert sweep.run_sweep()["expired"] == {}
    clock.advance(20)
    assert sweep.run_sweep()["expired"] == {"EXPIRED": 1}
    assert (read_job(job)["state"], read_job(job)["error"]["code"]) == ("EXPIRED", "EXPIRED")
    one.beat()
    assert one.claim() == []


@pytest.mark.parametrize(("age", "failed"), [(UNMATCHED - 1, False), (UNMATCHED + 1, True)])
def test_work_that_no_alive_worker_has_the_tags_for_fails_with_the_text_of_strom(
    worker, submit, read_job, clock, age, failed
):
    job, one = submit(tags=["gpu"]), worker()
    pass_time(clock, age, one)
    assert sweep.run_sweep()["unmatched"] == ({"FAILED": 1} if failed else {})
    if failed:
        assert read_job(job)["error"]["code"] == "NO_MATCHING_WORKER"
        assert read_job(job)["error"]["message"] == "No active worker with required tags to run this step"


@pytest.mark.parametrize("how", ["fresh", "stale", "cordoned", "full", "in maintenance", "created"])
def test_any_alive_worker_with_the_tags_is_a_match(worker, api, submit, clock, how):
    one = worker(tags=["gpu", "script"], max_concurrent=0 if how == "full" else 1)
    match how:
        case "cordoned":
            one.beat(schedulable=False, reason="its probe fails")
        case "in maintenance":
            one.beat(state="MAINTENANCE")
        case "created":
            Server.objects.all().delete()
            type(one).register(api("worker"), tags=["gpu", "script"])
    submit(tags=["gpu"])
    pass_time(clock, 40, *([one] if how == "fresh" else []))
    assert sweep.run_sweep()["unmatched"] == {}


def test_a_dead_worker_is_no_match(worker, submit, clock):
    worker(tags=["gpu", "script"]).beat(state="ERROR")
    submit(tags=["gpu"])
    clock.advance(40)
    assert sweep.run_sweep()["unmatched"] == {"FAILED": 1}


def test_unmatched_work_that_is_to_wait_waits(submit, clock):
    submit(tags=["gpu"])
    WorkerJob.objects.update(unmatched="wait")
    clock.advance(1000)
    assert sweep.run_sweep()["unmatched"] == {}


def test_nothing_is_unmatched_in_maintenance_nor_where_it_is_switched_off(submit, clock, settings):
    submit(tags=["gpu"])
    clock.advance(100)
    Instance.objects.update(maintenance_since=ClockTimestamp())
    assert sweep.run_sweep()["unmatched"] == {}
    Instance.objects.update(maintenance_since=None)
    settings.JOBS = {"UNMATCHED_AFTER": None}
    assert sweep.run_sweep()["unmatched"] == {}


def test_the_wait_for_a_match_begins_when_the_job_is_available(submit, clock):
    later = timezone.now() + timedelta(seconds=1000)
    submit(tags=["gpu"], available_at=later.isoformat())
    clock.advance(1020)
    assert sweep.run_sweep()["unmatched"] == {}
    clock.advance(20)
    assert sweep.run_sweep()["unmatched"] == {"FAILED": 1}


def test_a_job_that_waits_again_after_a_loss_has_the_whole_time_for_a_match(worker, submit, clock, settings):
    settings.JOBS = {"WAIT_AFTER_LOSS": False}
    submit()
    one = worker(config={"worker_task_restart_strategy": "IMMEDIATELY"})
    pass_time(clock, 100, one)
    one.hold()
    one.beat(state="ERROR")
    assert sweep.run_sweep() == {
        "holds": {},
        "recovered": {"RESUBMITTED": 1},
        "overdue": {},
        "expired": {},
        "unmatched": {},
        "timed_out": {},
        "late": {},
        "repaired": {},
        "limits": {},
    }
    clock.advance(40)
    assert sweep.run_sweep()["unmatched"] == {"FAILED": 1}


def test_an_outage_in_which_observed_time_stands_still_fails_no_job(worker, submit, clock):
    submit(timeout_seconds=10), submit(), submit(tags=["gpu"])
    one = worker()
    one.hold(), one.hold(running=False)
    clock.step(24 * 3600)
    assert sweep.run_sweep() == {
        "holds": {},
        "recovered": {},
        "overdue": {},
        "expired": {},
        "unmatched": {},
        "timed_out": {},
        "late": {},
        "repaired": {},
        "limits": {},
    }


@pytest.mark.parametrize("step", ["end_overdue_attempts", "expire_jobs", "fail_unmatched_jobs"])
def test_a_failing_step_does_not_silence_the_others(worker, submit, clock, monkeypatch, step):
    def explode():
        raise DatabaseError("a test")

    submit()
    one = worker(config={"worker_task_restart_strategy": "IMMEDIATELY"})
    one.hold()
    one.beat(state="ERROR")
    monkeypatch.setattr(sweep, step, explode)
    with pytest.raises(sweep.SweepFailed):
        sweep.run_sweep()
    assert Attempt.objects.get().state == "RESUBMITTED"


def fail(worker, attempt, code="ValueError"):
    return worker.report({"attempt": attempt["id"], "event": "FAILED", "error": {"code": code, "message": "no"}})[0]


@pytest.mark.parametrize(
    ("retry_on", "code", "retried"),
    [
        (None, "ValueError", True),
        (["ValueError"], "ValueError", True),
        (["KeyError"], "ValueError", False),
        (None, "WORKER_CRASHED", False),
        (["WORKER_CRASHED"], "WORKER_CRASHED", True),
    ],
)
def test_a_failed_job_is_retried_for_the_codes_it_names(worker, submit, read_job, retry_on, code, retried):
    job, one = submit(on_worker_lost="FAIL"), worker()
    WorkerJob.objects.update(max_retries=1, retry_on=retry_on)
    assert fail(one, one.hold(), code)["accepted"]
    job = read_job(job)
    assert (job["state"], job["retries"]) == (("PENDING", 1) if retried else ("FAILED", 0))
    assert ends(job) == ["CLAIMED", "RUNNING", "FAILED"]
    if retried:
        fail(one, one.hold(), code)
        assert (read_job(job)["state"], read_job(job)["error"]["code"]) == ("FAILED", code)


@pytest.mark.parametrize(("backoff", "expected"), [("fixed", [10, 10, 10]), ("exponential", [10, 20, 40])])
def test_each_retry_waits_for_the_jobs_delay_and_up_to_a_quarter_longer(worker, submit, clock, backoff, expected):
    submit()
    one = worker()
    WorkerJob.objects.update(max_retries=3, retry_delay_seconds=10, retry_backoff=backoff)
    for delay in expected:
        fail(one, one.hold())
        job, attempt = WorkerJob.objects.get(), Attempt.objects.order_by("number").last()
        assert delay <= (job.available_at - attempt.finished_at).total_seconds() <= 1.25 * delay
        assert one.claim() == []
        pass_time(clock, 1.25 * delay, one)


def test_a_job_whose_cancellation_was_requested_is_not_retried(worker, submit, read_job):
    job, one = submit(), worker()
    WorkerJob.objects.update(max_retries=5)
    attempt = one.hold()
    request_cancel(job)
    fail(one, attempt)
    assert (read_job(job)["state"], ends(read_job(job))[-1]) == ("CANCELLED", "CANCELLED")


def test_a_timeout_is_an_error_of_the_job_and_retried_like_one(worker, submit, read_job, clock):
    job, one = submit(timeout_seconds=5), worker()
    WorkerJob.objects.update(max_retries=1)
    one.hold()
    pass_time(clock, 30, one)
    assert sweep.run_sweep()["overdue"] == {"FAILED": 1}
    assert (read_job(job)["state"], read_job(job)["retries"]) == ("PENDING", 1)


def test_retries_and_resubmissions_are_counted_apart(worker, submit, read_job):
    job, one = submit(), worker(config={"worker_task_restart_strategy": "IMMEDIATELY"})
    WorkerJob.objects.update(max_retries=2)
    fail(one, one.hold())
    fail(one, one.hold(), "WORKER_CRASHED")
    fail(one, one.hold())
    assert (read_job(job)["retries"], read_job(job)["resubmissions"], read_job(job)["state"]) == (2, 1, "PENDING")


def test_a_runner_of_a_silent_server_is_left_to_the_liveness_check(worker, submit, read_job, clock):
    job, one = submit(), worker(config={"timeout_seconds": 2 * RUNNING_STALE})
    one.hold()
    clock.advance(RUNNING_STALE + 1)
    assert sweep.run_sweep()["overdue"] == {}
    assert read_job(job)["state"] == "RUNNING"
    one.beat(running=[])
    assert sweep.run_sweep()["overdue"] == {"RESUBMITTED": 1}, "it was heard since, and not of its code"
