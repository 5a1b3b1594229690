"""Read the stacks of Python processes from outside, with the program py-spy (Linux).

py-spy must be on the PATH of the agent, and the kernel must let it read processes of the same user (ptrace).
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from controlplane.agent.processes.child_process import ChildCommand
from controlplane.agent.processes.reaper import descendants

PROCESSES_READ = 10
"""Largest number of processes of an attempt whose stacks are read."""
READ_ALL = 'for pid do timeout -k 1 5 "$PY_SPY" dump --pid "$pid" 2>&1 || echo "(no stacks of process $pid)"; done'
OF_PYTHON = re.compile(r"/[^/\n]*python[^/\n]*$", re.MULTILINE)
"""Lines of /proc/PID/maps that name a Python interpreter, or its library loaded by another program."""


def find_python_processes(root: int) -> list[int]:
    """Return the processes below a process that run Python, parents first."""
    return [pid for pid in descendants(root) if _runs_python(pid)]


def build_py_spy_command(pids: list[int]) -> ChildCommand | None:
    """Return the command that prints the stacks of processes, or None if py-spy is not on the PATH."""
    path = shutil.which("py-spy")
    if path is None:
        return None
    environment = {"PATH": os.environ.get("PATH", os.defpath), "PY_SPY": path, "RUST_BACKTRACE": "0"}
    arguments = [str(pid) for pid in pids[:PROCESSES_READ]]
    return ChildCommand(["/bin/sh", "-c", READ_ALL, "sh", *arguments], environment, b"", is_own=True)


def _runs_python(pid: int) -> bool:
    try:
        return bool(OF_PYTHON.search(Path(f"/proc/{pid}/maps").read_text(errors="replace")))
    except OSError:  # it has ended, or belongs to another user
        return False
