"""Runner heartbeats do not list an attempt whose code gives no sign of life, although its worker is alive."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

from controlplane.agent.processes import process_view
from tests.support.standin import eventually

NAP = {"type": "script", "command": ["sleep", "1000"]}
HOLD_LOCK = "import ctypes, time\ndef hang(_):\n    ctypes.PyDLL(None).sleep(1000)\ndef nap(_):\n    time.sleep(1000)\n"


def listed(plane, *, ever: bool = False) -> dict[str, int]:
    """Return the attempts in the last heartbeat that lists running attempts, or in all such heartbeats."""
    with plane.lock:
        bodies = [body["running"] for call, body in plane.calls if call == "heartbeat" and "running" in body]
    return {item["attempt"]: item["pid"] for body in (bodies if ever else bodies[-1:]) for item in body}


def code_of(pid: int) -> int:
    """Return the process of the code. The first heartbeat may list a process that had not become the code yet."""

    def find() -> int | None:
        if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"sleep"):
            return pid
        return next(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()), None)

    return eventually(find)


def test_code_that_holds_the_lock_of_its_interpreter_or_was_stopped_is_not_listed(plane, agent, tmp_path):
    (tmp_path / "hanging.py").write_text(HOLD_LOCK)
    hangs, naps = (plane.submit({"type": "callable", "path": f"hanging:{name}"}) for name in ("hang", "nap"))
    stopped, sleeps = plane.submit(NAP), plane.submit(NAP)
    worker = agent()
    pids = eventually(lambda: len(listed_pids := listed(plane, ever=True)) == 4 and listed_pids)
    os.kill(code_of(pids[stopped]), signal.SIGSTOP)
    eventually(lambda: set(listed(plane)) == {naps, sleeps}, "those that hang are listed no more")
    assert "1 stopped" in worker.log

    os.kill(code_of(pids[stopped]), signal.SIGCONT)
    eventually(lambda: set(listed(plane)) == {naps, sleeps, stopped}, "what goes on is listed again")
    plane.heartbeat["cancel"] = [hangs]  # it is held all the same
    assert eventually(lambda: plane.final(hangs))["event"] == "CANCELLED"


PARENT = """
import os, sys
print(os.posix_spawn("/bin/sleep", ["sleep", "1000"], {}), flush=True)
sys.stdin.read()
"""


def test_a_process_is_seen_alive_stopped_and_as_a_zombie():
    with subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        pid = int(parent.stdout.readline())
        look = partial(process_view.look_below, parent.pid)
        try:
            eventually(lambda: look().states == "S")
            assert look().may_run
            os.kill(pid, signal.SIGSTOP)
            eventually(lambda: not look().may_run)
            assert str(look()).startswith("1 stopped")
        finally:
            os.kill(pid, signal.SIGKILL)
        eventually(lambda: look().states == "Z")
        assert str(look()).startswith("1 zombie")
