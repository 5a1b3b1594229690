"""Until when code may run, in memory that the heart writes and every process of the worker reads.

The memory is a file's, mapped before the pool forks. 0: no limit.
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

LOOK = 0.2  # seconds
DOUBLE = struct.Struct("d")


class Deadline:
    """On the uptime clock. Eight bytes that are aligned are written at once."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._memory = mmap.mmap(descriptor, mmap.PAGESIZE)

    @classmethod
    def made(cls) -> Deadline:
        descriptor = os.memfd_create("controlplane") if hasattr(os, "memfd_create") else _nameless()
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
    """Stop this process when the deadline passes, whatever else is frozen."""

    def look() -> None:
        while not deadline.has_passed():
            time.sleep(LOOK)
        stop()

    thread = threading.Thread(target=look, name="controlplane-fence", daemon=True)
    thread.start()
    return thread


def _nameless() -> int:
    import tempfile

    descriptor, path = tempfile.mkstemp()
    os.unlink(path)
    return descriptor
