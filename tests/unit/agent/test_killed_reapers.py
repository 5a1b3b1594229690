"""A reaper that is killed: the end of its attempt is reported when nothing of its code is left, and not before."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.support.escape import escaped, escaping, gone
from tests.support.standin import alive, eventually
from tests.unit.agent.test_agent_ends import reaper_of

# A chain of processes, each in a session of its own, each stopped but the last, which waits.
CHAIN = """
import os, signal, sys, time
for n in range(40):
    if os.fork():
        os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(1000)
    os.setsid()
open(sys.argv[1], "w").write(str(os.getpid()))
time.sleep(1000)
"""
# Another process at each look.
RUNNER = """
import os, sys
while True:
    os.fork() and os._exit(0)
    open(sys.argv[1], "w").close()
"""


def processes_of(attempt: str) -> list[int]:
    """Return all processes with this attempt in their environment, also stopped ones."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and attempt.encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return [pid for pid in found if alive(pid)]


@pytest.fixture
def left(plane):
    """Return the processes of an attempt that existed when its end was reported."""
    seen: dict[str, list[int]] = {}

    def look(body):
        for report in body["reports"]:
            if report["event"] in ("FAILED", "RELEASED", "CANCELLED"):
                seen.setdefault(report["attempt"], processes_of(report["attempt"]))

    plane.script["reports"] = look
    return seen


@pytest.mark.parametrize("kind", ["escaped", "chain", "runner"])
def test_nothing_of_an_attempt_is_left_when_its_end_is_reported(plane, agent, tmp_path, left, kind):
    on, script = tmp_path / "on", tmp_path / "script.py"
    script.write_text({"chain": CHAIN, "runner": RUNNER}.get(kind, ""))
    started = escaping(on) if kind == "escaped" else f"setsid {sys.executable} -I -S {script} {on} &"
    worker = agent()
    attempt = plane.submit(f"{started}\nsleep 1000")
    if kind == "escaped":
        for pid in escaped(on)[:3]:
            os.kill(pid, signal.SIGSTOP)
    eventually(on.exists)
    eventually(lambda: processes_of(attempt))
    os.kill(reaper_of(worker.process.pid), signal.SIGKILL)
    assert eventually(lambda: plane.final(attempt))["error"]["code"] == "WORKER_CRASHED"
    assert left[attempt] == [], "the next attempt may begin now"
    next_one = plane.submit("true")
    assert eventually(lambda: plane.final(next_one))["event"] == "COMPLETED"


def test_a_lost_attempt_counts_as_stopped_when_all_of_it_is_gone(plane, agent, tmp_path):
    on, script, seen = tmp_path / "on", tmp_path / "script.py", []
    script.write_text(RUNNER)
    worker = agent()
    attempt = plane.submit(f"setsid {sys.executable} -I -S {script} {on} &\nsleep 1000")
    eventually(on.exists)

    def look(body):
        if attempt in body["stopped"]:
            seen.append(processes_of(attempt))

    plane.script["heartbeat"] = look
    reaper = eventually(lambda: reaper_of(worker.process.pid))
    plane.heartbeat = {"lost": [attempt]}
    with suppress(ProcessLookupError):  # the agent may have ended the attempt by then
        os.kill(reaper, signal.SIGKILL)
    eventually(lambda: seen)
    assert seen[0] == []


def test_the_cleanup_of_a_killed_reaper_runs_before_the_end_is_reported(tmp_path):
    import selectors

    from controlplane.agent.processes.child_process import ChildCommand
    from controlplane.agent.processes.supervisor import Supervisor

    cleaned = tmp_path / "cleaned"
    with selectors.DefaultSelector() as selector:
        supervisor = Supervisor(selector)
        cleanup = ["/bin/sh", "-c", f"sleep 0.3; echo looked; touch {cleaned}"]
        command = ChildCommand(["/bin/sh", "-c", "sleep 1000"], dict(os.environ), b"", cleanup=cleanup)
        supervisor.start_child("key", command)

        def turn():
            supervisor.transfer_ready(selector.select(0.02))
            return supervisor.reap_children()

        reaper = supervisor.reaper_pid("key")
        eventually(lambda: not turn() and supervisor.child_pid("key") != reaper)
        code = supervisor.child_pid("key")
        psutil.Process(reaper).kill()
        (ended,) = eventually(turn)
        assert (ended.key, ended.pid, ended.status, ended.cleanup_output) == ("key", code, -signal.SIGKILL, "looked\n")
        assert cleaned.exists() and gone([code]) and not len(supervisor)
        supervisor.close()
