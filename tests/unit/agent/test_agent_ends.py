"""The end of the agent and of its jobs: signals, the fence, a control plane that does not answer."""

from __future__ import annotations

import os
import signal
import time

from tests.support.standin import Refuse, alive, eventually
from tests.unit.agent.test_agent_process import gone, napping


def test_sigterm_lets_running_jobs_finish(plane, agent, tmp_path):
    worker = agent()
    go = tmp_path / "go"
    attempt = plane.submit(f"touch {go}.began; while [ ! -e {go} ]; do sleep 0.02; done")
    eventually((tmp_path / "go.began").exists)
    worker.process.send_signal(signal.SIGTERM)
    eventually(lambda: plane.states()[-1] == "TERMINATING")
    claims = plane.count("claims")
    beats = plane.count("heartbeat")
    eventually(lambda: plane.count("heartbeat") > beats + 2)
    assert plane.count("claims") <= claims + 1 and worker.process.poll() is None
    go.touch()
    assert worker.exits() == 0
    assert plane.final(attempt)["event"] == "COMPLETED"
    assert plane.states() == ["RUNNING", "TERMINATING", "TERMINATED_GRACEFULLY"]
    assert "Received SIGTERM signal" in worker.log
    assert f"Deregistering worker ID: {plane.registrations[0]}" in worker.log
    assert worker.check().returncode == 1


def test_a_second_signal_forces_the_end_and_gives_jobs_back(plane, agent, tmp_path):
    worker = agent()
    attempt, processes = napping(plane, tmp_path / "pids")
    worker.process.send_signal(signal.SIGTERM)
    eventually(lambda: plane.states()[-1] == "TERMINATING")
    worker.process.send_signal(signal.SIGINT)
    assert worker.exits() == 1
    assert plane.final(attempt) == {"attempt": attempt, "event": "RELEASED", "reason": "forced"}
    assert plane.states()[-1] == "TERMINATED_FORCED"
    eventually(lambda: gone(processes))


def test_the_grace_period_is_an_end_to_waiting(plane, agent, tmp_path):
    worker = agent("--grace", "0.2")
    attempt = plane.submit(f"trap '' TERM; touch {tmp_path}/began; while true; do sleep 0.05; done")
    eventually((tmp_path / "began").exists)
    worker.process.send_signal(signal.SIGINT)
    assert worker.exits() == 1
    assert plane.final(attempt)["reason"] == "grace_period"
    assert plane.states()[-1] == "TERMINATED_FORCED"
    assert "Received SIGINT signal" in worker.log


def test_a_disconnected_worker_finishes_what_it_has_and_exits_non_zero(plane, agent, tmp_path):
    worker = agent()
    go = tmp_path / "go"
    attempt = plane.submit(f"touch {go}.began; while [ ! -e {go} ]; do sleep 0.02; done")
    eventually((tmp_path / "go.began").exists)

    def heartbeat(body):
        if body["state"] == "RUNNING":
            raise Refuse(409, "server_disconnected")

    plane.script["heartbeat"] = heartbeat
    eventually(lambda: plane.states()[-1] == "TERMINATING")
    go.touch()
    assert worker.exits() == 1
    assert plane.final(attempt)["event"] == "COMPLETED"
    assert plane.states()[-1] == "TERMINATED_GRACEFULLY"


def test_a_worker_declared_dead_kills_its_jobs_and_exits_non_zero(plane, agent, tmp_path):
    worker = agent()
    attempt, processes = napping(plane, tmp_path / "pids")

    def heartbeat(_):
        raise Refuse(409, "server_not_running")

    plane.script["heartbeat"] = heartbeat
    assert worker.exits() == 1
    eventually(lambda: gone(processes))
    assert plane.events(attempt) == ["STARTED"]


def test_a_purged_worker_registers_again_with_another_instance_id(plane, agent, tmp_path):
    worker = agent()
    _, processes = napping(plane, tmp_path / "pids")
    with plane.lock:
        plane.registrations.append("another")  # so the first one is unknown
    eventually(lambda: plane.count("servers") == 2)
    eventually(lambda: gone(processes))
    ids = [body["instance_id"] for call, body in plane.calls if call == "servers"]
    assert ids[0] != ids[1]
    attempt = plane.submit("true")
    eventually(lambda: plane.final(attempt))
    worker.process.send_signal(signal.SIGTERM)
    assert worker.exits() == 0


def test_an_unreachable_control_plane_gets_the_completions_later(plane, agent, tmp_path):
    plane.config["timeout_seconds"] = 1.0
    agent()
    go = tmp_path / "go"
    attempts = [plane.submit(f"touch {go}{n}.b; while [ ! -e {go}{n} ]; do sleep 0.02; done; echo {n}") for n in (1, 2)]
    eventually(lambda: all((tmp_path / f"go{n}.b").exists() for n in (1, 2)))
    plane.down = True
    (tmp_path / "go1").touch()
    (tmp_path / "go2").touch()
    time.sleep(0.3)  # nothing to poll for: the test needs a silent control plane
    plane.down = False
    outputs = [eventually(lambda attempt=attempt: plane.final(attempt))["output"]["stdout"] for attempt in attempts]
    assert outputs == ["1\n", "2\n"]


def test_the_fence_kills_and_is_reported_later(plane, agent, tmp_path):
    agent()
    attempt, processes = napping(plane, tmp_path / "pids")
    plane.lower_fence(0.6)
    plane.down = True
    eventually(lambda: gone(processes))
    plane.down = False
    assert eventually(lambda: plane.final(attempt)) == {"attempt": attempt, "event": "RELEASED", "reason": "fenced"}
    beats = plane.count("heartbeat")
    eventually(lambda: plane.count("heartbeat") > beats + 1)  # what is claimed while still unheard is given back
    later = plane.submit("true")
    assert eventually(lambda: plane.final(later))["event"] == "COMPLETED"


def test_the_fence_holds_while_a_heartbeat_hangs(plane, agent, tmp_path):
    plane.config["timeout_seconds"] = 60.0  # so the call may hang for long
    agent()
    attempt, processes = napping(plane, tmp_path / "pids")
    plane.lower_fence(0.6)
    hang = True

    def heartbeat(_):
        plane.lock.release()
        try:
            eventually(lambda: not hang)
        finally:
            plane.lock.acquire()

    plane.script["heartbeat"] = heartbeat
    eventually(lambda: gone(processes), within=9)  # the agent gives the call up after 10 s
    hang = False
    assert eventually(lambda: plane.final(attempt))["reason"] == "fenced"


def test_a_stopped_agent_cannot_keep_its_jobs_past_the_fence(plane, agent, tmp_path):
    worker = agent()
    attempt, processes = napping(plane, tmp_path / "pids")
    plane.lower_fence(0.8)
    worker.process.send_signal(signal.SIGSTOP)
    eventually(lambda: gone(processes))  # by the reaper
    worker.process.send_signal(signal.SIGCONT)
    assert eventually(lambda: plane.final(attempt))["reason"] == "fenced"
    assert worker.process.poll() is None


def test_an_agent_that_was_stopped_and_continues_fences_itself(plane, agent, tmp_path):
    worker = agent()
    attempt, processes = napping(plane, tmp_path / "pids")
    reaper = reaper_of(worker.process.pid)
    plane.lower_fence(3)
    os.kill(reaper, signal.SIGSTOP)
    worker.process.send_signal(signal.SIGSTOP)
    time.sleep(3.3)  # past the fence, while the agent is frozen
    assert all(alive(pid) for pid in processes)
    worker.process.send_signal(signal.SIGCONT)
    assert eventually(lambda: plane.final(attempt))["reason"] == "fenced"
    assert gone(processes) and not alive(reaper)


def test_children_die_with_a_killed_agent(plane, agent, tmp_path):
    worker = agent()
    _, processes = napping(plane, tmp_path / "pids")
    worker.process.kill()
    eventually(lambda: gone(processes))


def test_an_attempt_whose_reaper_is_killed_fails_and_nothing_of_it_is_left(plane, agent, tmp_path):
    worker = agent()
    attempt, processes = napping(plane, tmp_path / "pids")
    os.kill(reaper_of(worker.process.pid), signal.SIGKILL)
    assert eventually(lambda: plane.final(attempt))["error"]["code"] == "WORKER_CRASHED"
    eventually(lambda: gone(processes))
    assert worker.process.poll() is None


def reaper_of(pid: int) -> int | None:
    import psutil

    children = psutil.Process(pid).children()
    return next((c.pid for c in children if c.status() != "zombie" and "reaper.py" in " ".join(c.cmdline())), None)
