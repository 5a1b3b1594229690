"""`POST /servers/{id}/ended`: a machine reports that nothing of a server runs, and its jobs are recovered at once."""

import uuid

import pytest

from jobs.models import Attempt, TakenAttempt, WorkerJob
from jobs.services.liveness_check import check_liveness
from liveness.models import Server, ServerEvent
from liveness.services import tokens
from liveness.states import ServerState
from tests.integration.jobs.test_left_out import break_row, mend_rows
from tests.integration.races.test_hot_paths import submit_many
from tests.support.http import Caller, Worker
from tests.support.transitions import put

AFTER = {
    "CREATED": "ERROR",
    "RUNNING": "ERROR",
    "MAINTENANCE": "ERROR",
    "TERMINATING": "TERMINATED_FORCED",
    "DISCONNECTED": "NOT_RUNNING",
}


def end(worker, **body):
    return worker.post(f"/servers/{worker.id}/ended", body)


def refusal(answer):
    return answer.status_code, answer.json()["code"]


@pytest.fixture
def running(worker, submit):
    """Return a worker in the default strategy that runs a job, and the job."""
    job = submit()
    one = worker()
    one.hold()
    return one, job


@pytest.fixture
def read_job(submit):
    return lambda job: submit.client.get(f"/jobs/{job['id']}").json()


def test_the_jobs_of_an_ended_server_run_again_without_the_grace_period(running, read_job, worker):
    one, job = running
    assert end(one).json() == {"state": "ERROR", "attempts": 1}
    job = read_job(job)
    assert [entry["state"] for entry in job["timeline"] if entry["attempt"]] == ["CLAIMED", "RUNNING", "RESUBMITTED"]
    assert "nothing of it runs any more" in job["timeline"][-1]["reason"]
    assert worker(name="heir").hold()["number"] == 2
    assert not TakenAttempt.objects.exists()


@pytest.mark.parametrize("state", list(ServerState))
def test_each_state_has_its_end_and_an_ended_server_stays_as_it_is(worker, api, state):
    one = worker() if state != "CREATED" else Worker.register(api("worker"))
    put(Server.objects.get(pk=one.id), state)
    expected = AFTER.get(state, state)
    assert end(one, reason="killed").json() == {"state": expected, "attempts": 0}
    row = Server.objects.get(pk=one.id)
    assert (row.state, row.ended_at is not None) == (expected, True)
    if state in AFTER:
        last = ServerEvent.objects.filter(server_id=one.id).latest("id")
        assert (last.from_state, last.to_state, last.actor, last.reason) == (state, expected, "server", "killed")


@pytest.mark.parametrize("state", ["ERROR", "TERMINATED_FORCED"])
def test_a_server_that_waits_for_its_grace_period_waits_no_longer(running, read_job, state):
    one, job = running
    put(Server.objects.get(pk=one.id), state)
    check_liveness()
    assert read_job(job)["state"] == "RUNNING"
    assert end(one).json() == {"state": state, "attempts": 1}
    assert read_job(job)["state"] == "PENDING"


def test_the_same_report_again_gets_the_same_answer_and_changes_nothing(running):
    one, _ = running
    first = end(one).json()
    events = ServerEvent.objects.count()
    assert end(one, reason="another").json() == first
    assert ServerEvent.objects.count() == events


def test_a_job_that_fails_with_its_worker_fails_at_once(worker, submit, read_job):
    job = submit(on_worker_lost="FAIL")
    one = worker()
    one.hold()
    assert end(one).json()["attempts"] == 1
    assert read_job(job)["error"]["code"] == "WORKER_CRASHED"


def test_the_strategy_never_keeps_the_attempts_where_they_are(worker, submit, read_job):
    job = submit()
    one = worker(config={"worker_task_restart_strategy": "NEVER"})
    one.hold()
    assert end(one).json() == {"state": "ERROR", "attempts": 0}
    assert read_job(job)["state"] == "RUNNING"


def test_an_ended_server_may_no_longer_speak(running, read_job):
    one, job = running
    attempt = Attempt.objects.get(server_id=one.id)
    end(one)
    assert refusal(one.beat()) == (409, "server_not_running")
    assert refusal(one.beat(state="TERMINATING")) == (409, "server_not_running")
    assert refusal(one.post(f"/servers/{one.id}/claims", {"limit": 1})) == (409, "server_not_running")
    report = {"reports": [{"attempt": str(attempt.pk), "event": "COMPLETED", "output": 1}]}
    [result] = one.post(f"/servers/{one.id}/reports", report).json()["results"]
    assert (result["accepted"], result["code"]) == (False, "attempt_superseded")
    assert read_job(job)["state"] == "PENDING"


def test_a_claim_that_is_repeated_gets_nothing_after_the_end(worker, submit):
    submit()
    one = worker()
    request = {"limit": 1, "request_id": str(uuid.uuid4())}
    assert one.post(f"/servers/{one.id}/claims", request).json()["attempts"]
    end(one)
    assert refusal(one.post(f"/servers/{one.id}/claims", request)) == (409, "server_not_running")


@pytest.mark.parametrize("state", ["DISCONNECTED", "NOT_RUNNING", "INACTIVE"])
def test_an_ended_server_is_not_reactivated(settings, worker, state):
    settings.LIVENESS = settings.LIVENESS | {"REACTIVATE_ON_HEARTBEAT": True}
    one = worker()
    put(Server.objects.get(pk=one.id), state)
    end(one)
    assert refusal(one.beat()) == (409, "server_not_running")


def test_another_boot_proves_the_end_of_a_server_that_was_silent_since(running, clock):
    one, _ = running
    clock.advance(30)
    assert refusal(end(one, uptime_seconds=31)) == (409, "heartbeat_after_boot")
    assert Server.objects.get(pk=one.id).state == "RUNNING"
    assert end(one, uptime_seconds=29).json() == {"state": "ERROR", "attempts": 1}


def test_another_token_cannot_end_a_server(worker, api):
    one, other = worker(), worker(name="other")
    path = f"/servers/{one.id}/ended"
    assert refusal(other.post(path, {})) == (403, "not_your_server")
    assert refusal(api("worker").post(path, {})) == (403, "not_your_server")
    assert refusal(api("operator").post(path, {})) == (403, "not_your_server")
    assert Caller("nonsense").post(path, {}).status_code in (401, 403)


@pytest.mark.parametrize(
    "body", [{"uptime_seconds": -1}, {"uptime_seconds": "soon"}, {"reason": 5}, {"reason": "a\0b"}, {"why": "x"}, []]
)
def test_a_bad_body_ends_nothing(worker, body):
    one = worker()
    answer = one.post(f"/servers/{one.id}/ended", body)
    assert answer.status_code == 400
    assert Server.objects.get(pk=one.id).state == "RUNNING"


def test_the_recovery_that_fails_is_made_up_by_the_next_check(running, read_job, monkeypatch):
    from django.db import DatabaseError

    from jobs.services import recovery

    def fail(*_):
        raise DatabaseError("lost")

    one, job = running
    with monkeypatch.context() as patch:
        patch.setattr(recovery, "recover_server", fail)
        assert end(one).json() == {"state": "ERROR", "attempts": 0}
    check_liveness()
    assert read_job(job)["state"] == "PENDING"
    assert end(one).json() == {"state": "ERROR", "attempts": 1}


def test_the_time_of_recovery_is_counted_by_its_cause(running, worker, submit, clock):
    from liveness.selectors.metrics import counter_values

    one, _ = running
    end(one)
    submit()
    silent = worker(name="silent", config={"worker_task_restart_strategy": "IMMEDIATELY"}, old=True)
    silent.hold()
    clock.advance(60)
    check_liveness()
    sums = [labels for name, labels, _ in counter_values() if name == "recovery_seconds_sum"]
    assert sorted(sums) == [["reported"], ["silence"]]


def test_an_end_that_is_reported_twice_at_once_beside_claims_leaves_nothing_behind(committed, threads):
    client = Caller(tokens.create_token("a client", "client"))
    jobs = [{"action": {"type": "script", "command": "true"}} for _ in range(200)]
    assert client.post("/jobs", jobs).status_code == 201
    one = committed(max_concurrent=200)
    claims = [threads(one.post, f"/servers/{one.id}/claims", {"limit": 10}) for _ in range(6)]
    beats = [threads(one.beat) for _ in range(2)]
    ends = [threads(end, one) for _ in range(2)]
    assert {call.result(60).status_code for call in ends} == {200}
    assert {call.result(60).status_code for call in [*claims, *beats]} <= {200, 409}
    assert not Attempt.objects.filter(server_id=one.id, finished_at=None).exists()
    taken = Attempt.objects.filter(server_id=one.id).count()
    assert end(one).json() == {"state": "ERROR", "attempts": taken}
    assert WorkerJob.objects.filter(state="PENDING").count() == 200


def test_a_job_that_cannot_be_written_keeps_no_other_from_its_recovery(committed):
    submit_many(3)
    one = committed(max_concurrent=3)
    held = one.claim(limit=3)
    break_row("jobs_workerjob", held[1]["job"]["id"])
    assert end(one).json() == {"state": "ERROR", "attempts": 2}
    states = [WorkerJob.objects.get(pk=attempt["job"]["id"]).state for attempt in held]
    assert states == ["PENDING", "CLAIMED", "PENDING"]
    mend_rows()
    check_liveness()
    assert set(WorkerJob.objects.values_list("state", flat=True)) == {"PENDING"}
    assert end(one).json()["attempts"] == 3
