"""Celery tasks are jobs whose attempts the broker gives out: they are shown, but never claimed."""

import uuid

import pytest
from django.db import connection

from controlplane.core.model_fields import ClockTimestamp, ObservedNow
from jobs.models import Attempt, Hold, LateReport, WorkerJob
from jobs.services import recovery, sweep
from jobs.services.celery_tasks import SAME_LIMIT
from jobs.services.liveness_check import check_liveness
from tests.support.celery_tasks import TAGS, task, then
from tests.support.queries import CapturedQueries


def ends(job):
    return [(entry["state"], entry["reason"]) for entry in job["timeline"] if entry["attempt"] is not None]


def states(job):
    return [state for state, _ in ends(job)]


# From received to done


def test_a_task_that_is_held_is_a_claimed_job_with_what_is_known_of_it(one, read_job):
    one.say(task(state="HELD", eta="2030-01-01T00:00:00+00:00", retries=2, root="r", parent="p", held_seconds=3))
    job = read_job()
    assert (job["kind"], job["state"], job["key"]) == ("CELERY", "CLAIMED", "t")
    assert job["action"] == {
        "type": "celery", "task": "orders.send", "task_id": "t", "queue": "letters", "retries": 2, "root": "r",
        "parent": "p", "eta": "2030-01-01T00:00:00+00:00",
    }  # fmt: skip
    assert job["payload"] is None and job["required_tags"] == TAGS
    assert Attempt.objects.get().server_id == uuid.UUID(one.id)


def test_arguments_and_results_are_shown_if_they_are_reported(one, read_job):
    report = task(args="('ann',) {}")
    one.say(report, then(report, "COMPLETED", result="'sent'"))
    assert (read_job()["payload"], read_job()["output"], read_job()["state"]) == ("('ann',) {}", "'sent'", "COMPLETED")


def test_a_task_goes_from_held_to_its_end_in_three_words(one, read_job):
    report = task(state="HELD")
    one.say(report)
    one.say(then(report, "RUNNING"))
    one.say(then(report, "COMPLETED"))
    assert states(read_job()) == ["CLAIMED", "RUNNING", "COMPLETED"] and read_job()["state"] == "COMPLETED"


def test_a_failed_task_is_a_job_at_once_with_its_traceback(one, read_job):
    one.say(task(state="FAILED", running_seconds=0.2, error={"code": "ValueError", "message": "no", "traceback": "at"}))
    job = read_job()
    assert (job["state"], states(job)) == ("FAILED", ["CLAIMED", "RUNNING", "FAILED"])
    assert job["error"] == {"code": "ValueError", "message": "no", "traceback": "at"}


def test_its_ages_are_seconds_and_no_clock_of_its_worker_is_asked(one, clock):
    one.say(task(held_seconds=60, running_seconds=20))
    attempt = Attempt.objects.get()
    assert (attempt.started_at - attempt.claimed_at).total_seconds() == pytest.approx(40)


def test_each_try_of_a_task_is_an_attempt_of_one_job(one, read_job):
    one.say(task(state="RETRIED", running_seconds=0.1, error={"code": "Busy", "message": ""}))
    job = read_job()
    assert (job["state"], job["retries"], ends(job)[-1]) == ("PENDING", 1, ("FAILED", "Busy"))
    one.say(task(state="COMPLETED", retries=1))
    job = read_job()
    assert (job["state"], job["action"]["retries"], [a["number"] for a in job["attempts"]]) == ("COMPLETED", 1, [1, 2])


def test_several_words_on_one_task_in_a_call_are_taken_in_order(one, read_job):
    tries = [task(state="RETRIED", retries=nth, running_seconds=0) for nth in range(SAME_LIMIT - 1)]
    one.say(*tries, task(state="COMPLETED", retries=9))
    assert (read_job()["state"], len(read_job()["attempts"])) == ("COMPLETED", SAME_LIMIT)
    answer = one.post(f"/servers/{one.id}/tasks", {"tasks": [task() for _ in range(SAME_LIMIT + 1)]})
    assert (answer.status_code, answer.json()["code"]) == (400, "too_often")


def test_the_same_again_changes_nothing(one, read_job):
    reports = [task("a", "HELD"), task("b"), task("c", "COMPLETED"), task("d", "FAILED", error={"code": "E"}),
            task("e", "RETRIED"), task("f", "LOST", running_seconds=1), task("g", "REVOKED")]  # fmt: skip
    one.say(*reports)
    before = list(WorkerJob.objects.order_by("pk").values()), list(Attempt.objects.order_by("pk").values())
    assert one.say(*reports) == {"cancel": [], "late": [], "again": []}
    assert before == (list(WorkerJob.objects.order_by("pk").values()), list(Attempt.objects.order_by("pk").values()))


def test_a_call_is_one_round_trip(one, two):
    two.say(*[task(f"moved {nth}") for nth in range(10)])
    every = ["HELD", "RUNNING", "COMPLETED", "FAILED", "RETRIED", "LOST", "RETURNED", "REVOKED", "QUARANTINED", "SENT"]
    reports = [task(f"{state} {nth}", state) for state in every for nth in range(10)]
    sums = [{"name": "orders.send", "completed": 3}]
    with CapturedQueries(connection) as queries:
        one.say(*reports, *[task(f"moved {nth}") for nth in range(10)], counter=str(uuid.uuid4()), tally=sums)
    assert len(queries) == 1


# Lost, and taken by another worker


def test_a_task_of_a_lost_worker_continues_at_the_worker_with_its_message(one, two, read_job):
    one.say(task())
    one.lose()
    assert recovery.recover_attempts() == {"RESUBMITTED": 1}
    assert (read_job()["state"], read_job()["resubmissions"]) == ("PENDING", 1)
    report = task()
    two.say(report)
    two.say(then(report, "COMPLETED"))
    job = read_job()
    assert job["state"] == "COMPLETED" and ends(job) == [
        ("CLAIMED", ""), ("RUNNING", ""), ("RESUBMITTED", "server one is ERROR"),
        ("CLAIMED", ""), ("RUNNING", ""), ("COMPLETED", ""),
    ]  # fmt: skip


def test_the_worker_reports_why_a_task_was_lost(one, read_job):
    report = task()
    one.say(report)
    one.say(then(report, "LOST", reason="signal 9; restored", error={"code": "WORKER_CRASHED", "message": "signal 9"}))
    assert (read_job()["state"], ends(read_job())[-1]) == ("PENDING", ("RESUBMITTED", "signal 9; restored"))


def test_the_worker_with_the_message_has_the_task_before_the_loss_is_found(one, two, read_job):
    one.say(task())
    two.say(task())
    assert ends(read_job())[2:] == [("RESUBMITTED", "the broker gave it to two"), ("CLAIMED", ""), ("RUNNING", "")]
    assert (read_job()["state"], read_job()["resubmissions"]) == ("RUNNING", 1)


def test_the_next_try_elsewhere_is_no_loss(one, two, read_job):
    one.say(task())
    two.say(task(retries=1))
    assert ends(read_job())[2] == ("FAILED", "retried") and (read_job()["resubmissions"], read_job()["retries"]) == (
        0,
        1,
    )


@pytest.mark.parametrize("end", ["COMPLETED", "FAILED", "QUARANTINED"])
def test_a_short_task_may_end_elsewhere_before_its_loss_is_reported(one, two, read_job, clock, end):
    lost = task()
    one.say(lost)
    clock.advance(2)
    two.say(task(state=end, held_seconds=1, running_seconds=0.1))
    expected = "COMPLETED" if end == "COMPLETED" else "FAILED"
    assert (read_job()["state"], read_job()["attempts"][1]["state"]) == (expected, expected)
    one.say(then(lost, "LOST"))
    assert read_job()["state"] == expected


def test_the_end_of_an_older_delivery_ends_no_newer_one(one, two, read_job):
    two.say(task(retries=1))
    for older in task(state="COMPLETED", retries=1, held_seconds=60), task(state="RETRIED"):
        assert one.say(older)["late"] == [older["attempt"]]
    assert read_job()["state"] == "RUNNING"


def test_only_its_worker_decides_that_a_task_was_lost_too_often(celery_worker, read_job):
    for nth in range(6):
        worker = celery_worker(f"w{nth}")
        worker.say(task())
        worker.lose()
        recovery.recover_attempts()
    assert (read_job()["state"], read_job()["resubmissions"]) == ("PENDING", 6)


def test_a_late_word_takes_nothing_back_and_an_end_that_came_late_is_kept_once(one, two, read_job):
    late, now = task(), task()
    one.say(late)
    two.say(now)
    for _ in range(2):
        assert one.say(then(late, "RUNNING"))["late"] == [late["attempt"]]
        assert one.say(then(late, "COMPLETED", result="late"))["late"] == [late["attempt"]]
    assert read_job()["state"] == "RUNNING"
    assert [(one.event, one.body) for one in LateReport.objects.all()] == [("COMPLETED", {"output": "late"})]
    assert two.say(then(now, "COMPLETED")) == {"cancel": [], "late": [], "again": []}


@pytest.mark.parametrize("state", ["DISCONNECTED", "TERMINATED_GRACEFULLY", "ERROR"])
def test_who_is_lost_takes_no_task_from_who_lives_and_its_last_words_count(one, two, read_job, state):
    held = task("held")
    one.say(held)
    two.say(task("moved"))
    one.lose(state)
    moved, unknown = task("moved"), task("unknown", "HELD")
    assert set(one.say(moved, unknown)["late"]) == {moved["attempt"], unknown["attempt"]}
    assert (read_job("moved")["state"], WorkerJob.objects.filter(key="unknown").exists()) == ("RUNNING", False)
    one.say(then(held, "COMPLETED"), task("short", "FAILED", error={"code": "E"}))
    assert (read_job("held")["state"], read_job("short")["state"]) == ("COMPLETED", "FAILED")


def test_an_ended_task_that_is_delivered_again_is_a_new_job_with_a_link(one, read_job):
    report = task()
    one.say(then(report, "COMPLETED"))
    first = read_job()["id"]
    again = task()
    one.say(again)
    assert (read_job()["state"], WorkerJob.objects.get(key="t").resubmission_of_id) == ("RUNNING", uuid.UUID(first))
    one.say(then(again, "COMPLETED"))
    one.say(then(report, "COMPLETED"))
    assert WorkerJob.objects.count() == 2


@pytest.mark.parametrize("state", ["LOST", "RETURNED", "REVOKED"])
def test_a_belated_loss_of_a_task_that_ended_elsewhere_makes_no_new_job(one, two, state):
    two.say(task(state="COMPLETED"))
    assert len(one.say(task(state=state))["late"]) == 1
    assert WorkerJob.objects.get().state == "COMPLETED"


@pytest.mark.parametrize("state", ["RUNNING", "RETRIED", "FAILED"])
def test_a_late_report_of_an_earlier_try_makes_no_new_job(one, two, clock, state):
    two.say(task(state="COMPLETED", retries=1))
    early = task(state=state, held_seconds=5)
    assert one.say(early)["late"] == [early["attempt"]]
    assert WorkerJob.objects.get().state == "COMPLETED"
    clock.advance(10)
    one.say(task(state=state, held_seconds=5))  # sent again under the same id
    assert WorkerJob.objects.count() == 2


# Other actions on jobs


def test_no_worker_claims_a_celery_task_whatever_its_tags(one, two):
    one.say(task())
    one.lose()
    recovery.recover_attempts()
    assert two.claim(limit=10) == [] and WorkerJob.objects.get().state == "PENDING"


def test_a_task_that_its_worker_reports_is_alive_and_any_other_is_lost(one, read_job, clock):
    held, forgotten = task("held"), task("forgotten")
    one.say(held, forgotten)
    for _ in range(6):
        clock.advance(60)
        one.beat()
        one.say(held)
    sweep.run_sweep()
    assert (read_job("held")["state"], read_job("forgotten")["state"]) == ("RUNNING", "PENDING")


@pytest.mark.parametrize("end", ["RETRIED", "LOST", "RETURNED", "forgotten", "of a lost worker"])
def test_a_task_whose_message_nobody_receives_for_a_day_expires_with_advice(one, two, read_job, clock, end):
    report = task()
    one.say(report)
    if end == "of a lost worker":
        one.lose()
    elif end != "forgotten":
        one.say(then(report, end))
    for _ in range(6):  # less than the timeout of its worker at a time
        clock.advance(60)
        if end != "of a lost worker":
            one.beat()
        sweep.run_sweep()
    assert read_job()["state"] == "PENDING"
    clock.advance(86400 - 400)
    sweep.run_sweep()
    assert read_job()["state"] == "PENDING"
    clock.advance(401)
    sweep.run_sweep()
    assert read_job()["state"] == "EXPIRED" and "result backend" in read_job()["error"]["message"]


@pytest.mark.parametrize("why", ["hold", "no worker"])
def test_a_task_does_not_expire_while_no_worker_can_receive_it(one, celery_worker, read_job, clock, why):
    one.say(task(state="RETRIED"))
    if why == "hold":
        hold = Hold.objects.create(kind="queue", value="letters", by="ann")
    else:
        one.lose()
    for _ in range(5):
        clock.advance(40_000)
        sweep.run_sweep()
    if why == "hold":
        Hold.objects.filter(pk=hold.pk).update(ended_at=ClockTimestamp(), ended_observed=ObservedNow())
    else:
        celery_worker("two")
    clock.advance(43_000)
    sweep.run_sweep()
    assert read_job()["state"] == "PENDING"
    clock.advance(86_401)
    sweep.run_sweep()
    assert read_job()["state"] == "EXPIRED"


def test_a_task_that_no_worker_can_receive_expires_when_jobs_are_no_longer_kept(one, read_job, clock, settings):
    settings.JOBS = {**settings.JOBS, "JOB_RETENTION": 3 * 86_400}
    one.say(task(state="RETRIED"))
    one.lose()
    for _ in range(5):
        clock.advance(86_399)
        sweep.expire_jobs()
    assert read_job()["state"] == "EXPIRED"


def test_an_expired_task_that_is_received_after_all_is_a_new_job(one, read_job, clock):
    one.say(task(state="RETRIED"))
    first = read_job()["id"]
    clock.advance(86401)
    sweep.run_sweep()
    one.beat()
    one.say(task(state="COMPLETED", retries=1))
    assert (read_job()["state"], read_job()["attempts"][0]["number"]) == ("COMPLETED", 1)
    assert WorkerJob.objects.get(pk=first).state == "EXPIRED"


def test_a_running_task_expires_only_a_day_after_its_loss(one, read_job, clock):
    one.say(task(state="RETRIED"))
    clock.advance(80000)
    one.beat()
    report = task(retries=1)
    one.say(report)
    clock.advance(80000)
    one.beat()
    one.say(then(report, "LOST"))
    clock.advance(80000)
    sweep.run_sweep()
    assert read_job()["state"] == "PENDING"


def test_cancelling_a_task_asks_its_worker_to_revoke_it(one, read_job, api):
    report = task()
    one.say(report)
    assert api("operator").post(f"/jobs/{read_job()['id']}/cancel", {"note": "wrong"}).status_code == 200
    assert one.beat().json()["cancel"] == [report["attempt"]]
    one.say(then(report, "REVOKED"))
    assert (read_job()["state"], states(read_job())[-1]) == ("CANCELLED", "CANCELLED")


def test_a_cancelled_task_is_revoked_at_any_worker_within_three_hours(one, read_job, api, clock):
    one.say(task(state="RETRIED"))
    api("operator").post(f"/jobs/{read_job()['id']}/cancel", {"note": "wrong"})
    report = task(state="HELD")
    assert one.say(report) == {"cancel": [report["attempt"]], "late": [], "again": []}
    assert WorkerJob.objects.get().state == "CANCELLED"
    clock.advance(3 * 3600 + 1)
    one.beat()
    assert one.say(task(state="HELD")) == {"cancel": [], "late": [], "again": []}
    assert read_job()["state"] == "CLAIMED"


@pytest.mark.parametrize("call", ["resubmit", "fail"])
@pytest.mark.parametrize("state", ["RUNNING", "RETRIED", "FAILED"])
def test_what_only_its_broker_can_do_is_refused(one, read_job, api, call, state):
    one.say(task(state=state))
    answer = api("operator").post(f"/jobs/{read_job()['id']}/{call}", {"note": "x"})
    expected = "job_ended" if (call, state) == ("fail", "FAILED") else "celery_task"
    assert (answer.status_code, answer.json()["code"]) == (409, expected)


def test_taken_attempts_of_celery_tasks_are_nobodys_to_stop(one, api):
    """A Celery worker has another fence; its heart process lists no attempts."""
    one.say(task())
    api("operator").post(f"/servers/{one.id}/disconnect", {"note": "x"})
    check_liveness()
    assert one.beat(state="TERMINATING").json()["lost"] == []
