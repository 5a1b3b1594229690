"""Claims of jobs that are Celery tasks, in the heart: one step at a time."""

from __future__ import annotations

import json
import os

import pytest

from controlplane.agent.api.transport import ClaimResult, ReportResult
from controlplane.agent.celery.heart.claim import send_order
from controlplane.agent.celery.heart.claims import RECEIVED_WITHIN, CeleryClaims
from controlplane.agent.celery.heart.fence import TwoWitnesses
from controlplane.agent.celery.messages import (
    BeginJob,
    ForgetJob,
    JobKnown,
    JobWaiting,
    Revoke,
    SendJob,
    TaskEnded,
    TaskHeld,
    TaskRunning,
)
from controlplane.agent.from_code.pulse import SILENT_AFTER, pulse_into
from controlplane.agent.limits import PAYLOAD_IN_ENVIRONMENT
from controlplane.agent.runners.runner import job_environment
from tests.support.standin import eventually
from tests.unit.celery_agent.test_fence_and_rescue import Clock

OWN = "controlplane.jobs.me"


class Heart:
    """Claims, with their orders and reports."""

    def __init__(self, folder, is_prefork=True):
        self.clock, self.orders = Clock(), []
        self.fence = TwoWitnesses(2.0, lambda at: None, self.clock)
        self.claims = CeleryClaims(
            queue=OWN, folder=folder, slots=2, main=1, is_prefork=is_prefork, fence=self.fence,
            order=self.orders.append, clock=self.clock,
        )  # fmt: skip

    def claim(self, id="a", timeout=None, action=None):
        action = action or {"type": "celery", "task": "orders.send", "queue": "letters"}
        job = {"id": "j", "action": action, "payload": None, "timeout_seconds": timeout}
        self.claims.record_result(ClaimResult([{"id": id, "number": 1, "job": job}]))

    def receive(self, id="a"):
        self.claims.read(TaskHeld(f"tag of {id}", id, "orders.send", OWN))
        self.claims.read(JobWaiting(id, None))

    def answer(self, event, id="a", accepted=True):
        self.claims.record_result(ReportResult({"attempt": id, "event": event}, {"accepted": accepted}))

    def begin(self, id="a", pid=7, **job):
        self.claim(id, **job)
        self.receive(id)
        self.answer("STARTED", id)
        self.claims.read(TaskRunning(f"tag of {id}", pid))

    def end(self, outcome, text=None, id="a"):
        self.claims.read(TaskEnded(f"tag of {id}", outcome, 1.0, text))

    def look(self, *, takes=True, open_=True):
        self.claims.look(0, takes=takes, open_=open_)

    def ordered(self, kind):
        """Return the ids in the orders of one type."""
        return [order[0] for order in self.orders if isinstance(order, kind)]

    @property
    def reports(self):
        return [report["event"] for report in self.claims.outbox.unanswered_reports()]

    @property
    def last(self):
        return self.claims.outbox.unanswered_reports()[-1]


@pytest.fixture
def heart(tmp_path):
    return Heart(tmp_path)


def test_a_claimed_job_begins_once_the_control_plane_accepts_its_start(heart):
    heart.claim()
    assert heart.ordered(SendJob) == ["a"] and heart.reports == []
    assert heart.claims.list_held().claimed == ["a"]
    heart.receive()
    assert heart.reports == ["STARTED"] and heart.ordered(BeginJob) == []
    heart.answer("STARTED")
    assert heart.ordered(BeginJob) == ["a"]
    heart.claims.read(TaskRunning("tag of a", 7))
    assert heart.claims.list_held().running == [{"attempt": "a", "pid": 7}]


def test_the_message_of_a_job_has_the_trace_of_its_submission():
    job = {"id": "j", "action": {"type": "celery", "task": "orders.send"}, "traceparent": "00-a-b-01"}
    assert send_order({"id": "a", "number": 1, "job": job}).headers["traceparent"] == "00-a-b-01"
    assert set(send_order({"id": "a", "number": 1, "job": job | {"traceparent": None}}).headers) == {"job"}


@pytest.mark.parametrize("text", ["x", "é"])
def test_celery_jobs_and_other_jobs_get_a_payload_of_the_same_size(text):
    for size in (PAYLOAD_IN_ENVIRONMENT - 1, PAYLOAD_IN_ENVIRONMENT):
        payload = text * (size // len(json.dumps(text).strip('"')))
        item = {"id": "a", "number": 1, "job": {"id": "j", "action": {"task": "orders.send"}, "payload": payload}}
        about = send_order(item).headers["job"]
        assert ("payload" in about) == ("JOB_PAYLOAD" in job_environment(item, {}))


def test_a_repeated_claim_is_sent_once(heart):
    heart.claim()
    heart.claim()
    assert heart.ordered(SendJob) == ["a"]


def test_the_result_file_is_the_output_and_the_job_is_forgotten_after_the_answer(heart, tmp_path):
    heart.begin()
    (tmp_path / "a").write_text(json.dumps({"output": {"sent": 2}}))
    heart.end("COMPLETED")
    assert heart.last == {"attempt": "a", "event": "COMPLETED", "output": {"sent": 2}}
    assert heart.claims.list_held().running, "the job is held until the report is answered"
    heart.answer("COMPLETED")
    assert not heart.claims.list_held().running and heart.ordered(ForgetJob) == ["a"]
    assert not (tmp_path / "a").exists()


def test_without_a_result_file_the_worker_text_is_the_error(heart):
    heart.begin()
    heart.end("FAILED", "TimeLimitExceeded: 3 s")
    assert heart.last["error"] | {"traceback": ""} == {
        "code": "TimeLimitExceeded", "message": "3 s", "traceback": "",
    }  # fmt: skip


def test_an_attempt_whose_start_is_refused_never_begins(heart):
    heart.claim()
    heart.receive()
    heart.answer("STARTED", accepted=False)
    assert heart.ordered(BeginJob) == [] and heart.ordered(Revoke) == ["a"]
    assert heart.claims.list_held().claimed == []


def test_a_message_without_a_claim_is_reported_and_revoked_if_refused(heart):
    heart.receive("stale")
    assert heart.reports == ["STARTED"]
    heart.answer("STARTED", "stale", accepted=False)
    assert heart.ordered(BeginJob) == [] and heart.ordered(Revoke) == ["stale"]


def test_a_retry_by_celery_stays_within_the_attempt(heart):
    heart.begin()
    heart.end("RETRIED", "Retry: in 1 s")
    assert heart.reports == ["STARTED"]
    heart.receive()
    assert heart.ordered(BeginJob) == ["a", "a"] and heart.reports == ["STARTED"]


def test_a_job_that_its_worker_does_not_receive_is_released_after_a_minute(heart):
    heart.claim()
    heart.clock.now += RECEIVED_WITHIN - 0.1
    heart.look()
    assert heart.reports == []
    heart.clock.now += 0.1
    heart.look()
    assert heart.last == {"attempt": "a", "event": "RELEASED", "reason": "not_received"}


def test_a_cordoned_worker_releases_the_jobs_that_it_has_not_received(heart):
    heart.claim("waiting")
    heart.begin("running")
    heart.look(open_=False)
    assert heart.last == {"attempt": "waiting", "event": "RELEASED", "reason": "cordoned"}


def test_a_job_that_is_no_celery_task_is_released(heart):
    heart.claim(action={"type": "script", "command": "true"})
    assert heart.last == {"attempt": "a", "event": "RELEASED", "reason": "not_allowed"}
    assert heart.ordered(SendJob) == []


def test_a_job_that_is_cancelled_before_it_begins_ends_at_once(heart):
    heart.claim()
    heart.claims.cancel(["a", "another's"])
    assert heart.last == {"attempt": "a", "event": "CANCELLED"} and heart.ordered(Revoke) == ["a"]


def test_a_running_job_that_is_cancelled_ends_with_its_process(heart):
    heart.begin()
    heart.claims.cancel(["a"])
    heart.claims.cancel(["a"])
    assert heart.reports == ["STARTED"] and heart.ordered(Revoke) == ["a"]
    heart.end("REVOKED")
    assert heart.last == {"attempt": "a", "event": "CANCELLED"}


def test_a_thread_keeps_its_attempt_until_it_ends_by_itself(tmp_path):
    heart = Heart(tmp_path, is_prefork=False)
    heart.begin(timeout=5)
    heart.clock.now += 5
    heart.look()
    heart.clock.now += 60
    heart.look()
    assert heart.reports == ["STARTED"] and heart.claims.list_held().running
    heart.end("COMPLETED")
    assert heart.last["error"]["code"] == "STEP_TIMEOUT"


def test_a_job_that_another_server_has_is_reported_as_stopped_once_it_ended(heart):
    heart.begin()
    heart.claims.lose(["a", "unknown"])
    assert heart.claims.list_held().stopped == [] and heart.orders[-1] == Revoke("a", "KILL")
    heart.end("REVOKED")
    assert heart.claims.list_held().stopped == ["a"] and heart.reports == ["STARTED"]


def test_without_the_control_plane_jobs_end_although_the_broker_has_no_mark(heart):
    heart.fence.renew_deadline(heart.clock.now, 10)
    heart.begin()
    heart.clock.now += 10
    heart.fence.record_unmarked(heart.clock.now)
    assert not heart.fence.has_passed()
    heart.look()
    assert heart.orders[-1] == Revoke("a", "KILL")
    heart.end("REVOKED")
    assert heart.last == {"attempt": "a", "event": "RELEASED", "reason": "fenced"}


def test_at_the_end_of_a_worker_jobs_that_did_not_run_are_released(heart):
    heart.begin("running")
    heart.begin("ended")
    heart.claim("waiting")
    heart.claims.finish({"tag of running"})
    released = [report for report in heart.claims.outbox.unanswered_reports() if report["event"] == "RELEASED"]
    assert [(report["attempt"], report["reason"]) for report in released] == [
        ("ended", "worker_ended"), ("waiting", "worker_ended"),
    ]  # fmt: skip


def test_an_ending_worker_releases_jobs_that_have_not_begun(heart):
    heart.claim("claimed")
    heart.claim("received")
    heart.receive("received")
    heart.claims.close("terminating")
    assert {report["event"] for report in heart.claims.outbox.unanswered_reports()} == {"RELEASED"}
    heart.claim("late")
    assert heart.last == {"attempt": "late", "event": "RELEASED", "reason": "terminating"}


def test_a_new_heart_learns_the_running_jobs_and_their_timeouts(heart):
    heart.claims.read(JobKnown("a", 5.0))
    heart.claims.read(TaskHeld("tag of a", "a", "orders.send", OWN))
    heart.claims.read(TaskRunning("tag of a", 7))
    assert heart.claims.list_held().running == [{"attempt": "a", "pid": 7}]
    heart.clock.now += 5
    heart.look()
    assert heart.ordered(Revoke) == ["a"]


def test_at_the_end_of_a_worker_cancelled_jobs_are_reported_as_cancelled(heart):
    heart.begin("given away")
    heart.begin("cancelled")
    heart.claims.lose(["given away"])
    heart.claims.cancel(["cancelled"])
    heart.claims.finish(None)
    assert heart.last == {"attempt": "cancelled", "event": "CANCELLED"}
    assert heart.reports == ["STARTED", "STARTED", "CANCELLED"]


def held(heart):
    held = heart.claims.list_held()
    return [[row["attempt"] for row in rows] for rows in (held.running, held.silent)]


def test_code_is_silent_while_its_signs_of_life_stop(heart, tmp_path):
    heart.begin()
    signs = tmp_path / "a.pulse"
    for moment in range(3):
        signs.touch()
        os.utime(signs, (moment, moment))
        heart.clock.now += SILENT_AFTER
        heart.look()
        assert held(heart) == [["a"], []]
    heart.clock.now += SILENT_AFTER
    heart.look()
    assert held(heart) == [["a"], []]
    heart.clock.now += 0.1
    heart.look()
    assert held(heart) == [[], ["a"]]
    os.utime(signs, (9, 9))
    heart.look()
    assert held(heart) == [["a"], []]


def test_code_that_never_gave_a_sign_of_life_is_not_silent(heart):
    heart.begin()
    heart.look()
    heart.clock.now += 100 * SILENT_AFTER
    heart.look()
    assert held(heart) == [["a"], []]


def test_a_job_that_ended_is_not_silent_and_leaves_no_file(heart, tmp_path):
    heart.begin()
    (tmp_path / "a.pulse").touch()
    heart.look()
    heart.clock.now += 2 * SILENT_AFTER
    heart.look()
    assert held(heart) == [[], ["a"]]
    heart.end("LOST_CHILD", "WORKER_CRASHED: it was killed")
    assert held(heart) == [["a"], []]
    heart.answer("FAILED")
    assert not (tmp_path / "a.pulse").exists()


def test_signs_of_life_are_in_a_file_that_is_removed_at_the_end(tmp_path):
    file = tmp_path / "pulse"
    with pulse_into(str(file)):
        eventually(file.read_text)
        os.utime(file, (1, 1))
        eventually(lambda: file.stat().st_mtime != 1)
    assert not file.exists()
    with pulse_into(str(tmp_path / "no" / "folder")):
        pass
