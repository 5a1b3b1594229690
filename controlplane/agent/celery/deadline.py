"""Deadline until which tasks may run. The heart writes it to shared memory, and every process of the worker reads it.

The memory is a mapped file that is made before the pool forks. The value 0 means no limit.
"""

from __future__ import annotations

import mmap
import os
import signal
import struct
import threading
import time
from collections.abc import Callable

from controlplane.agent.fence import read_uptime

LOOK_EVERY = 0.2  # seconds
DOUBLE = struct.Struct("d")


class Deadline:
    """Deadline on the uptime clock, in seconds. Writing is atomic, because it is eight aligned bytes."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._memory = mmap.mmap(descriptor, mmap.PAGESIZE)

    @classmethod
    def made(cls) -> Deadline:
        """Return a deadline in new memory, without a limit."""
        descriptor = os.memfd_create("controlplane") if hasattr(os, "memfd_create") else _unlinked_file()
        os.ftruncate(descriptor, mmap.PAGESIZE)
        return cls(descriptor)

    def write(self, at: float | None) -> None:
        self._memory[: DOUBLE.size] = DOUBLE.pack(at or 0.0)

    def read(self) -> float | None:
        (at,) = DOUBLE.unpack(self._memory[: DOUBLE.size])
        return at or None

    def has_passed(self) -> bool:
        at = self.read()
        return at is not None and read_uptime() >= at


def kill_myself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def watch(deadline: Deadline, stop: Callable[[], None] = kill_myself) -> threading.Thread:
    """Start a thread that calls `stop` when the deadline passes. By default it kills this process with SIGKILL."""

    def look() -> None:
        while not deadline.has_passed():
            time.sleep(LOOK_EVERY)
        stop()

    thread = threading.Thread(target=look, name="controlplane-fence", daemon=True)
    thread.start()
    return thread


def _unlinked_file() -> int:
    import tempfile

    descriptor, path = tempfile.mkstemp()
    os.unlink(path)
    return descriptor
