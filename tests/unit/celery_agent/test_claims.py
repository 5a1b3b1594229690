"""Jobs that are tasks, in the heart: claimed, begun, ended and given back, one step at a time."""

from __future__ import annotations

import json
import os

import pytest

from controlplane.agent.celery.claim import message_of
from controlplane.agent.celery.claims import RECEIVED_WITHIN, Claims
from controlplane.agent.celery.fence import TwoWitnesses
from controlplane.agent.limits import PAYLOAD_IN_ENVIRONMENT
from controlplane.agent.pulse import SILENT_AFTER, pulse_into
from controlplane.agent.runners import job_environment
from controlplane.agent.transport import ClaimResult, ReportResult
from tests.support.standin import eventually
from tests.unit.celery_agent.test_verdicts import Clock

OWN = "controlplane.jobs.me"


class Heart:
    """Claims with what they order and report."""

    def __init__(self, folder, is_prefork=True):
        self.clock, self.orders = Clock(), []
        self.fence = TwoWitnesses(2.0, lambda at: None, self.clock)
        self.claims = Claims(
            queue=OWN, folder=folder, slots=2, main=1, is_prefork=is_prefork, fence=self.fence,
            order=self.orders.append, clock=self.clock,
        )  # fmt: skip

    def claim(self, id="a", timeout=None, action=None):
        action = action or {"type": "celery", "task": "orders.send", "queue": "letters"}
        job = {"id": "j", "action": action, "payload": None, "timeout_seconds": timeout}
        self.claims.hear(ClaimResult([{"id": id, "number": 1, "job": job}]))

    def read(self, *line):
        self.claims.read(list(line))

    def receive(self, id="a"):
        self.read("+", f"tag of {id}", id, "orders.send", OWN, None)
        self.read("?", id, None)

    def answer(self, event, id="a", accepted=True):
        self.claims.hear(ReportResult({"attempt": id, "event": event}, {"accepted": accepted}))

    def begin(self, id="a", pid=7, **said):
        self.claim(id, **said)
        self.receive(id)
        self.answer("STARTED", id)
        self.read(">", f"tag of {id}", pid)

    def end(self, outcome, text=None, id="a"):
        self.read("-", f"tag of {id}", outcome, 1.0, text, None)

    def look(self, *, takes=True, open_=True):
        self.claims.look(0, takes=takes, open_=open_)

    def ordered(self, order):
        return [said.get("task") or said["job"]["attempt"] for said in self.orders if said["order"] == order]

    @property
    def reports(self):
        return [report["event"] for report in self.claims.outbox.unanswered_reports()]

    @property
    def last(self):
        return self.claims.outbox.unanswered_reports()[-1]


@pytest.fixture
def heart(tmp_path):
    return Heart(tmp_path)


def test_a_claimed_job_is_sent_and_begins_once_its_start_was_heard(heart):
    heart.claim()
    assert heart.ordered("send") == ["a"] and heart.reports == []
    assert heart.claims.list_held().claimed == ["a"]
    heart.receive()
    assert heart.reports == ["STARTED"] and heart.ordered("begin") == []
    heart.answer("STARTED")
    assert heart.ordered("begin") == ["a"]
    heart.read(">", "tag of a", 7)
    assert heart.claims.list_held().running == [{"attempt": "a", "pid": 7}]


def test_the_message_of_a_job_has_the_trace_in_which_it_was_submitted():
    job = {"id": "j", "action": {"type": "celery", "task": "orders.send"}, "traceparent": "00-a-b-01"}
    assert message_of({"id": "a", "number": 1, "job": job})["headers"]["traceparent"] == "00-a-b-01"
    assert set(message_of({"id": "a", "number": 1, "job": job | {"traceparent": None}})["headers"]) == {"job"}


@pytest.mark.parametrize("text", ["x", "é"])
def test_the_message_of_a_job_has_the_payload_that_the_environment_of_other_code_has(text):
    for size in (PAYLOAD_IN_ENVIRONMENT - 1, PAYLOAD_IN_ENVIRONMENT):
        payload = text * (size // len(json.dumps(text).strip('"')))
        item = {"id": "a", "number": 1, "job": {"id": "j", "action": {"task": "orders.send"}, "payload": payload}}
        about = message_of(item)["headers"]["job"]
        assert ("payload" in about) == ("JOB_PAYLOAD" in job_environment(item, {}))


def test_a_claim_that_is_repeated_is_sent_once(heart):
    heart.claim()
    heart.claim()
    assert heart.ordered("send") == ["a"]


def test_what_it_returned_is_the_output_and_it_is_forgotten_when_that_was_heard(heart, tmp_path):
    heart.begin()
    (tmp_path / "a").write_text(json.dumps({"output": {"sent": 2}}))
    heart.end("COMPLETED")
    assert heart.last == {"attempt": "a", "event": "COMPLETED", "output": {"sent": 2}}
    assert heart.claims.list_held().running, "it is ours until that was answered"
    heart.answer("COMPLETED")
    assert not heart.claims.list_held().running and heart.ordered("forget") == ["a"]
    assert not (tmp_path / "a").exists()


def test_without_a_result_its_end_is_what_the_worker_says_of_it(heart):
    heart.begin()
    heart.end("FAILED", "TimeLimitExceeded: 3 s")
    assert heart.last["error"] | {"traceback": ""} == {
        "code": "TimeLimitExceeded", "message": "3 s", "traceback": "",
    }  # fmt: skip


def test_an_attempt_whose_start_is_refused_never_begins(heart):
    heart.claim()
    heart.receive()
    heart.answer("STARTED", accepted=False)
    assert heart.ordered("begin") == [] and heart.ordered("revoke") == ["a"]
    assert heart.claims.list_held().claimed == []


def test_a_message_that_nobody_here_claimed_is_asked_for(heart):
    heart.receive("stale")
    assert heart.reports == ["STARTED"]
    heart.answer("STARTED", "stale", accepted=False)
    assert heart.ordered("begin") == [] and heart.ordered("revoke") == ["stale"]


def test_a_try_of_the_tasks_own_is_within_the_attempt(heart):
    heart.begin()
    heart.end("RETRIED", "Retry: in 1 s")
    assert heart.reports == ["STARTED"]
    heart.receive()
    assert heart.ordered("begin") == ["a", "a"] and heart.reports == ["STARTED"]


def test_what_the_worker_does_not_take_out_of_its_queue_is_given_back_in_time(heart):
    heart.claim()
    heart.clock.now += RECEIVED_WITHIN - 0.1
    heart.look()
    assert heart.reports == []
    heart.clock.now += 0.1
    heart.look()
    assert heart.last == {"attempt": "a", "event": "RELEASED", "reason": "not_received"}


def test_cordoned_it_gives_back_what_its_worker_has_not_received(heart):
    heart.claim("waiting")
    heart.begin("running")
    heart.look(open_=False)
    assert heart.last == {"attempt": "waiting", "event": "RELEASED", "reason": "cordoned"}


def test_what_is_no_task_is_given_back(heart):
    heart.claim(action={"type": "script", "command": "true"})
    assert heart.last == {"attempt": "a", "event": "RELEASED", "reason": "not_allowed"}
    assert heart.ordered("send") == []


def test_cancelled_before_it_began_it_is_over_at_once(heart):
    heart.claim()
    heart.claims.cancel(["a", "another's"])
    assert heart.last == {"attempt": "a", "event": "CANCELLED"} and heart.ordered("revoke") == ["a"]


def test_cancelled_while_it_runs_it_is_over_when_its_process_is(heart):
    heart.begin()
    heart.claims.cancel(["a"])
    heart.claims.cancel(["a"])
    assert heart.reports == ["STARTED"] and heart.ordered("revoke") == ["a"]
    heart.end("REVOKED")
    assert heart.last == {"attempt": "a", "event": "CANCELLED"}


def test_a_thread_that_cannot_be_ended_keeps_its_attempt_until_it_ends(tmp_path):
    heart = Heart(tmp_path, is_prefork=False)
    heart.begin(timeout=5)
    heart.clock.now += 5
    heart.look()
    heart.clock.now += 60
    heart.look()
    assert heart.reports == ["STARTED"] and heart.claims.list_held().running
    heart.end("COMPLETED")
    assert heart.last["error"]["code"] == "STEP_TIMEOUT"


def test_given_away_it_is_ended_and_only_then_said_to_be_stopped(heart):
    heart.begin()
    heart.claims.lose(["a", "unknown"])
    assert heart.claims.list_held().stopped == [] and heart.orders[-1]["signal"] == "KILL"
    heart.end("REVOKED")
    assert heart.claims.list_held().stopped == ["a"] and heart.reports == ["STARTED"]


def test_unheard_for_too_long_it_ends_its_jobs_though_the_broker_permits_its_tasks(heart):
    heart.fence.renew_deadline(heart.clock.now, 10)
    heart.begin()
    heart.clock.now += 10
    heart.fence.unmarked(heart.clock.now)
    assert not heart.fence.has_passed()
    heart.look()
    assert heart.orders[-1] == {"order": "revoke", "task": "a", "signal": "KILL"}
    heart.end("REVOKED")
    assert heart.last == {"attempt": "a", "event": "RELEASED", "reason": "fenced"}


def test_at_the_end_of_its_worker_what_ran_is_a_loss_and_the_rest_is_given_back(heart):
    heart.begin("running")
    heart.begin("ended")
    heart.claim("waiting")
    heart.claims.finish({"tag of running"})
    released = [report for report in heart.claims.outbox.unanswered_reports() if report["event"] == "RELEASED"]
    assert [(report["attempt"], report["reason"]) for report in released] == [
        ("ended", "worker_ended"), ("waiting", "worker_ended"),
    ]  # fmt: skip


def test_a_worker_that_ends_begins_nothing(heart):
    heart.claim("claimed")
    heart.claim("received")
    heart.receive("received")
    heart.claims.close("terminating")
    assert {report["event"] for report in heart.claims.outbox.unanswered_reports()} == {"RELEASED"}
    heart.claim("late")
    assert heart.last == {"attempt": "late", "event": "RELEASED", "reason": "terminating"}


def test_a_heart_that_begins_is_told_what_runs_and_how_it_may(heart):
    heart.read("job", "a", 5.0)
    heart.read("+", "tag of a", "a", "orders.send", OWN, None)
    heart.read(">", "tag of a", 7)
    assert heart.claims.list_held().running == [{"attempt": "a", "pid": 7}]
    heart.clock.now += 5
    heart.look()
    assert heart.ordered("revoke") == ["a"]


def test_at_the_end_of_its_worker_what_was_given_away_is_forgotten_and_what_was_cancelled_is_said(heart):
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


def test_code_that_gives_no_more_signs_of_life_is_silent_until_it_gives_one_again(heart, tmp_path):
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


def test_code_that_was_never_asked_for_signs_is_not_silent(heart):
    heart.begin()
    heart.look()
    heart.clock.now += 100 * SILENT_AFTER
    heart.look()
    assert held(heart) == [["a"], []]


def test_what_has_ended_is_not_silent_and_leaves_no_signs(heart, tmp_path):
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


def test_a_block_gives_signs_of_life_in_a_file_which_goes_with_it(tmp_path):
    file = tmp_path / "pulse"
    with pulse_into(str(file)):
        eventually(file.read_text)
        os.utime(file, (1, 1))
        eventually(lambda: file.stat().st_mtime != 1)
    assert not file.exists()
    with pulse_into(str(tmp_path / "no" / "folder")):
        pass
