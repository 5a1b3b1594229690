"""Guards of the agent at its edges: the fence, what counts as stopped, the reaper's own fence, the last heartbeat."""

from __future__ import annotations

import os
import selectors
import signal

import pytest

from controlplane.agent.api.outbox import Outbox
from controlplane.agent.attempts import AttemptTracker
from controlplane.agent.fence import Fence
from controlplane.agent.fitness.machine_watch import MachineWatch
from controlplane.agent.fitness.self_cordon import SelfCordon
from controlplane.agent.limits import FENCE_MARGIN
from controlplane.agent.processes.folder import Folder
from controlplane.agent.processes.supervisor import Supervisor
from controlplane.agent.runners.policy import ActionPolicy
from tests.support.standin import Refuse, alive, eventually


class Tracker:
    """The attempts of an agent whose clock a test sets."""

    def __init__(self):
        self.now, self.outbox, self.folder = 0.0, Outbox(), Folder()
        self.fence = Fence(lambda: self.now)
        self.selector = selectors.DefaultSelector()
        self.supervisor = Supervisor(self.selector)
        machine = MachineWatch(self.supervisor, self.folder, os.environ, SelfCordon(), lambda: None)
        policy = ActionPolicy.parse_options("script")
        self.attempts = AttemptTracker(
            self.supervisor, self.outbox, policy, self.fence, machine, self.folder, dict(os.environ)
        )

    def claim(self, command):
        job = {"id": "job", "action": {"type": "script", "command": command}, "payload": None}
        self.attempts.accept_claims([{"id": "attempt", "number": 1, "job": job}])

    def begin(self):
        self.attempts.record_answer({"attempt": "attempt", "event": "STARTED"}, {"accepted": True})

    def turn(self):
        self.supervisor.transfer_ready(self.selector.select(0.02))
        for child_exit in self.supervisor.reap_children():
            self.attempts.record_exit(child_exit)
        return True

    def close(self):
        self.supervisor.close()
        self.folder.remove()
        self.selector.close()


@pytest.fixture
def tracker():
    tracker = Tracker()
    yield tracker
    tracker.close()


def test_one_bad_item_of_a_claim_fails_and_the_others_begin(tracker, tmp_path):
    ran = tmp_path / "ran"
    action = {"type": "script", "command": f"touch {ran}"}
    bad = {"id": "job", "action": action, "payload": "text", "payload_from": {"/a": "b.output"}}
    good = {"id": "other", "action": action, "payload": None}
    tracker.attempts.accept_claims(
        [{"id": "bad", "number": 1, "job": bad}, {"id": "attempt", "number": 1, "job": good}]
    )
    reports = {report["attempt"]: report for report in tracker.outbox.unanswered_reports()}
    assert [report["event"] for report in tracker.outbox.unanswered_reports()] == ["STARTED", "FAILED", "STARTED"]
    assert reports["bad"]["error"]["code"] == "CANNOT_START"
    assert "the claimed job cannot be read" in reports["bad"]["error"]["message"]
    for report in tracker.outbox.unanswered_reports():
        tracker.attempts.record_answer(report, {"accepted": True})
    eventually(lambda: tracker.turn() and ran.exists())


@pytest.mark.parametrize(("at", "begins"), [(9.99, True), (10.0, False)])
def test_no_code_begins_at_the_fence_though_its_start_was_accepted(tracker, tmp_path, at, begins):
    ran = tmp_path / "ran"
    tracker.fence.renew_deadline(0.0, 10.0)
    tracker.claim(f"touch {ran}")
    tracker.now = at
    tracker.begin()
    eventually(lambda: tracker.turn() and tracker.outbox.unanswered_reports()[-1]["event"] != "STARTED")
    assert ran.exists() == begins
    last = tracker.outbox.unanswered_reports()[-1]
    assert (last["event"], last.get("reason")) == (("COMPLETED", None) if begins else ("RELEASED", "fenced"))


def test_a_lost_attempt_is_not_stopped_while_its_processes_are_there(tracker, tmp_path):
    file = tmp_path / "pid"
    tracker.claim(f"echo $$ > {file}; sleep 1000")
    tracker.begin()
    pid = int(eventually(lambda: tracker.turn() and file.exists() and file.read_text()))
    reaper = tracker.supervisor.reaper_pid("attempt")
    os.kill(reaper, signal.SIGSTOP)  # so that its end is not seen at once
    tracker.attempts.ends.kill_lost(["attempt"])
    if alive(reaper):
        assert tracker.attempts.list_held_attempts().stopped == []
        assert not tracker.attempts.ends.has_newly_stopped()
    eventually(lambda: tracker.turn() and tracker.attempts.ends.has_newly_stopped())
    assert tracker.attempts.list_held_attempts().stopped == ["attempt"]
    assert not alive(pid) and not alive(reaper)


@pytest.mark.parametrize("timeout", [2.0, 45.0, 600.0])
def test_the_reaper_kills_after_the_agent_and_before_a_job_is_given_away(timeout):
    fence = Fence(lambda: 0.0)
    assert fence.reaper_deadline(timeout) is None
    fence.renew_deadline(100.0, 30.0)
    given_away = 130.0 + FENCE_MARGIN * timeout
    assert 130.0 < fence.reaper_deadline(timeout) < given_away


def test_a_worker_with_unanswered_reports_sends_no_last_heartbeat(plane, agent, tmp_path):
    go = tmp_path / "go"
    worker = agent("--grace", "0.5")
    attempt = plane.submit(f"touch {go}.on; while [ ! -e {go} ]; do sleep 0.02; done")
    eventually((tmp_path / "go.on").exists)

    def unavailable(body):
        raise Refuse(503)

    plane.script["reports"] = unavailable
    go.touch()
    eventually(lambda: "Job ended" in worker.log)
    worker.process.send_signal(signal.SIGTERM)
    assert worker.exits() == 1
    assert plane.final(attempt) is None
    assert plane.states()[-1] == "TERMINATING", "its jobs would be given away though one has completed"
