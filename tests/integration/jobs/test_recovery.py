"""Recovery of jobs of lost workers: by strategy, by `on_worker_lost` and by earlier losses."""

from datetime import datetime

import pytest

from jobs.models import Attempt, WorkerJob
from jobs.services import recovery
from jobs.services.liveness_check import check_liveness
from liveness.models import Server
from tests.support.transitions import put

STRATEGIES = ["IMMEDIATELY", "AFTER_TERMINATION_GRACE_PERIOD", "NEVER"]
LOST = ["ERROR", "DISCONNECTED", "TERMINATED_GRACEFULLY", "TERMINATED_FORCED", "NOT_RUNNING", "INACTIVE"]
CRASH = {"code": "WORKER_CRASHED", "message": "signal 9"}


@pytest.fixture
def lost(worker, clock):
    """Lose a worker, by default one whose jobs move at once: `attempt = lost(hold=…)`."""

    def lost(strategy="IMMEDIATELY", state="ERROR", *, running=True, **fields):
        one = worker(config={"worker_task_restart_strategy": strategy}, **fields)
        attempt = one.hold(running=running)
        if state in ("DISCONNECTED", "NOT_RUNNING", "INACTIVE"):
            clock.advance(46)  # a server is never lost before its fence
        put(Server.objects.get(pk=one.id), state)
        return Attempt.objects.get(pk=attempt["id"])

    return lost


@pytest.fixture
def read_job(submit):
    return lambda job: submit.client.get(f"/jobs/{job['id']}").json()


def ends(job):
    return [entry["state"] for entry in job["timeline"] if entry["attempt"] is not None]


def delay(job):
    """Return the time from the end of the last attempt until the job may be claimed again."""
    available, ended = job["available_at"], job["attempts"][-1]["finished_at"]
    return (datetime.fromisoformat(available) - datetime.fromisoformat(ended)).total_seconds()


@pytest.mark.parametrize("state", LOST)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_claimed_attempt_of_a_lost_server_is_requeued_under_every_strategy(lost, submit, read_job, strategy, state):
    job = submit(on_worker_lost="FAIL")
    lost(strategy, state, running=False)
    assert recovery.recover_attempts() == {"REQUEUED": 1}
    job = read_job(job)
    assert (job["state"], job["resubmissions"], ends(job)) == ("PENDING", 0, ["CLAIMED", "REQUEUED"])


@pytest.mark.parametrize("state", LOST)
def test_a_running_attempt_is_resubmitted_at_once_where_the_strategy_is_immediately(
    lost, submit, read_job, worker, state
):
    job = submit()
    first = lost(state=state)
    assert recovery.recover_attempts() == {"RESUBMITTED": 1}
    job = read_job(job)
    assert (job["state"], job["resubmissions"], job["error"]) == ("PENDING", 1, None)
    assert ends(job) == ["CLAIMED", "RUNNING", "RESUBMITTED"]
    assert job["attempts"][0]["error"]["code"] == "WORKER_CRASHED"
    assert job["timeline"][-1]["reason"]
    second = worker(name="heir").hold()
    assert (second["number"], second["id"] != str(first.id)) == (2, True)


@pytest.mark.parametrize("state", ["ERROR", "DISCONNECTED", "TERMINATED_FORCED"])
def test_a_running_attempt_waits_for_the_grace_period_if_the_strategy_does(lost, submit, clock, state):
    submit()
    lost("AFTER_TERMINATION_GRACE_PERIOD", state)
    clock.advance(298)
    assert recovery.recover_attempts() == {}
    clock.advance(3)
    assert recovery.recover_attempts() == {"RESUBMITTED": 1}


def test_a_graceful_end_confirms_that_the_code_has_ended(lost, submit):
    submit()
    lost("AFTER_TERMINATION_GRACE_PERIOD", "TERMINATED_GRACEFULLY")
    assert recovery.recover_attempts() == {"RESUBMITTED": 1}


@pytest.mark.parametrize("on_worker_lost", ["RESUBMIT", "FAIL"])
def test_running_attempts_stay_where_the_strategy_is_never(lost, submit, read_job, clock, on_worker_lost):
    job = submit(on_worker_lost=on_worker_lost)
    lost("NEVER")
    for _ in range(3):
        clock.advance(10_000)
        check_liveness()
    assert (read_job(job)["state"], ends(read_job(job))) == ("RUNNING", ["CLAIMED", "RUNNING"])
    assert Server.objects.get().state == "INACTIVE"


@pytest.mark.parametrize("strategy", STRATEGIES[:2])
def test_a_job_that_is_to_fail_with_its_worker_fails_as_soon_as_it_is_lost(lost, submit, read_job, strategy):
    job = submit(on_worker_lost="FAIL")
    attempt = lost(strategy, name="the-worker", hostname="h")
    assert recovery.recover_attempts() == {"FAILED": 1}
    job = read_job(job)
    assert (job["state"], ends(job)[-1], job["resubmissions"]) == ("FAILED", "FAILED", 0)
    assert job["error"]["code"] == "WORKER_CRASHED"
    assert "the-worker" in job["error"]["message"]
    assert (job["error"]["server"], job["error"]["host"]) == (str(attempt.server_id), "h")


@pytest.mark.parametrize("state", ["RUNNING", "MAINTENANCE"])
def test_nothing_of_a_living_server_is_touched(lost, submit, state):
    submit()
    attempt = lost(state=state)
    assert recovery.recover_attempts() == {}
    attempt.refresh_from_db()
    assert attempt.state == "RUNNING"


@pytest.mark.parametrize("end", ["COMPLETED", "FAILED"])
def test_what_has_ended_is_never_changed_again(worker, submit, read_job, end):
    job = submit()
    one = worker(config={"worker_task_restart_strategy": "IMMEDIATELY"})
    more = {"output": 1} if end == "COMPLETED" else {"error": {"code": "X", "message": "x"}}
    one.report({"attempt": one.hold()["id"], "event": end, **more})
    before = read_job(job)
    put(Server.objects.get(), "NOT_RUNNING")
    assert recovery.recover_attempts() == {}
    assert read_job(job) == before


def test_each_loss_waits_longer_and_the_one_after_the_last_allowed_fails(lost, submit, read_job, clock):
    job = submit()
    for number, least in enumerate([0, 10, 60], start=1):
        lost()
        recovery.recover_attempts()
        now = read_job(job)
        assert (now["state"], now["resubmissions"]) == ("PENDING", number)
        if least:
            assert least <= delay(now) <= least * 1.25 + 0.1
        else:
            assert delay(now) <= 0
        clock.advance(76)
    lost()
    assert recovery.recover_attempts() == {"FAILED": 1}
    job = read_job(job)
    assert (job["state"], job["resubmissions"], len(job["attempts"])) == ("FAILED", 3, 4)
    assert job["error"]["code"] == "RESUBMISSIONS_EXHAUSTED"
    assert job["error"]["cause"]["code"] == "WORKER_CRASHED"


@pytest.mark.parametrize("number", [1, 2])
def test_a_resubmitted_job_is_not_claimed_before_its_wait_is_over(lost, submit, worker, clock, number):
    submit()
    for _ in range(number):
        lost()
        recovery.recover_attempts()
    heir = worker(name="heir")
    assert len(heir.claim()) == (number == 1)
    clock.advance(13)
    heir.beat()
    assert len(heir.claim()) == (number == 2)


def test_the_wait_is_jittered_but_never_shorter_than_it_should_be(lost, submit):
    waits = []
    for _ in range(20):
        job = submit()
        WorkerJob.objects.filter(pk=job["id"]).update(resubmissions=1)
        attempt = lost()
        recovery.recover_attempts()
        after = WorkerJob.objects.get(pk=job["id"])
        attempt.refresh_from_db()
        waits.append((after.available_at - attempt.finished_at).total_seconds())
        WorkerJob.objects.all().update(state="CANCELLED", finished_at=after.created_at)
    assert all(10 <= wait <= 12.6 for wait in waits)
    assert len({round(wait, 3) for wait in waits}) > 10


@pytest.mark.parametrize(("most", "end"), [(0, "FAILED"), (1, "PENDING")])
def test_the_number_of_losses_a_job_survives_is_a_setting(lost, submit, read_job, settings, most, end):
    settings.JOBS = {"MAX_RESUBMISSIONS": most}
    job = submit()
    lost()
    recovery.recover_attempts()
    assert read_job(job)["state"] == end


def test_crashes_that_workers_report_and_lost_workers_count_together(lost, worker, submit, read_job, clock, settings):
    settings.JOBS = {"MAX_RESUBMISSIONS": 1}
    job = submit()
    lost()
    recovery.recover_attempts()
    one = worker(name="reporter")
    one.report({"attempt": one.hold()["id"], "event": "FAILED", "error": CRASH})
    job = read_job(job)
    assert (job["state"], job["error"]["code"], job["error"]["cause"]) == ("FAILED", "RESUBMISSIONS_EXHAUSTED", CRASH)
    assert [attempt["state"] for attempt in job["attempts"]] == ["RESUBMITTED", "FAILED"]


def test_claims_given_back_and_requeued_count_as_no_loss(lost, worker, submit, read_job, settings):
    settings.JOBS = {"MAX_RESUBMISSIONS": 0}
    job = submit()
    lost(running=False)
    recovery.recover_attempts()
    one = worker(name="releaser")
    for running in (False, True):
        one.report({"attempt": one.hold(running=running)["id"], "event": "RELEASED", "reason": "fenced"})
    job = read_job(job)
    assert (job["state"], job["resubmissions"]) == ("PENDING", 0)
    assert [attempt["state"] for attempt in job["attempts"]] == ["REQUEUED", "RELEASED", "RESUBMITTED"]


@pytest.mark.parametrize("default", ["RESUBMIT", "FAIL"])
def test_a_setting_decides_about_jobs_without_on_worker_lost(lost, submit, settings, default):
    settings.JOBS = {"ON_WORKER_LOST": default}
    assert submit()["on_worker_lost"] == default
    lost()
    assert recovery.recover_attempts() == {"RESUBMITTED" if default == "RESUBMIT" else "FAILED": 1}


@pytest.mark.parametrize("batch", [1, 2, 5, 6])
def test_many_attempts_are_recovered_in_batches_and_each_once(worker, submit, batch):
    for _ in range(5):
        submit()
    one = worker()
    for running in (True, True, True, False, False):
        one.hold(running=running)
    put(Server.objects.get(), "TERMINATED_GRACEFULLY")
    assert recovery.recover_attempts(batch) == {"RESUBMITTED": 3, "REQUEUED": 2}
    assert recovery.recover_attempts(batch) == {}
    assert WorkerJob.objects.filter(state="PENDING").count() == 5


def recovery_lines(caplog):
    lines = [record.msg for record in caplog.records if record.name == recovery.__name__]
    assert all({"server", "reason"} <= line.keys() for line in lines)
    return lines


def test_each_attempt_that_is_recovered_is_a_line_of_the_log(worker, submit, caplog):
    one = worker(name="w")
    held = []
    for running in (True, True, True, False):
        submit()
        held.append(one.hold(running=running))
    put(Server.objects.get(), "TERMINATED_GRACEFULLY")
    recovery.recover_attempts()
    lines = recovery_lines(caplog)
    assert {(line["attempt"], line["job"]) for line in lines} == {(had["id"], had["job"]["id"]) for had in held}
    assert {(line["server"], line["reason"]) for line in lines} == {(one.id, "server w is TERMINATED_GRACEFULLY")}
    events = sorted(line["event"] for line in lines)
    assert events == ["Attempt REQUEUED, job PENDING"] + ["Attempt RESUBMITTED, job PENDING"] * 3


def test_of_a_mass_of_attempts_the_log_names_a_hundred_and_counts_the_others(worker, submit, caplog, monkeypatch):
    monkeypatch.setattr(recovery, "LOGGED_LIMIT", 2)
    one = worker(name="w")
    for running in (True, True, True, False):
        submit()
        one.hold(running=running)
    put(Server.objects.get(), "TERMINATED_GRACEFULLY")
    recovery.recover_attempts()
    lines = recovery_lines(caplog)
    assert sum(line.get("jobs", 1) for line in lines) == 4
    assert len([line for line in lines if "job" in line]) == 2
