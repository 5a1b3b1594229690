"""Read the stacks of a process that has opened its stack file (from_code/stack_file.py)."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from controlplane.agent.from_code.stack_file import NAME, stack_signal

PATIENCE = 10.0  # seconds until the process must have started and written its stacks
LOOK = 0.02  # seconds between two looks at the file


def read_stacks(find_pid: Callable[[], int | None]) -> str | None:
    """Return the stacks of all threads of a process, or None if it does not write them. Takes up to PATIENCE seconds.

    `find_pid` returns its id. That may change while the process starts.
    """
    until = time.monotonic() + PATIENCE
    while sys.platform == "linux" and time.monotonic() < until and (pid := find_pid()) is not None:
        try:
            file = _find_file(pid)
            if file is not None and _catches(pid, stack_signal()):
                os.truncate(file, 0)
                os.kill(pid, stack_signal())
                return _read_when_written(file, until)
        except OSError:  # it has ended, or it becomes another program
            pass
        time.sleep(LOOK)
    return None


def _find_file(pid: int) -> Path | None:
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = os.readlink(descriptor)
        except FileNotFoundError:
            continue
        if target.startswith(f"/memfd:{NAME}"):
            return descriptor
    return None


def _catches(pid: int, number: int) -> bool:
    """Return True if the process has a handler for the signal. Otherwise the signal would end it."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def _read_when_written(file: Path, until: float) -> str | None:
    """Return the content of the file once it does not grow any more. None: it was not written in time."""
    size = 0
    while time.monotonic() < until:
        time.sleep(LOOK)
        before, size = size, file.stat().st_size
        if size and size == before:
            return file.read_text(encoding="utf-8", errors="replace")
    return None
