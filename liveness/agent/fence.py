"""Self-fencing: the moment from which our work may be running elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


def uptime() -> float:
    """Seconds on a clock that never goes back and, where the system has one, counts suspended time.

    The plain monotonic clock of Linux stops while a laptop or a virtual machine sleeps; the control plane does not.
    """
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boottime is None else time.clock_gettime(boottime)


class Fence:
    """A deadline that every answered heartbeat moves on, counted from the *start* of its request.

    The control plane stored the beat at some moment after we began to send it, so the start is the only safe origin.
    Thread safe.
    """

    def __init__(self, clock: Callable[[], float] = uptime) -> None:
        self.clock = clock
        self._lock = threading.Lock()
        self._deadline: float | None = None

    @property
    def deadline(self) -> float | None:
        """On `clock`; None: nothing is ever given away."""
        return self._deadline

    def renew(self, started: float, after: float | None) -> None:
        """A beat begun at `started` was answered: good for `after` seconds from then (None: for ever)."""
        with self._lock:
            self._deadline = None if after is None else started + after

    def passed(self) -> bool:
        deadline = self._deadline
        return deadline is not None and self.clock() >= deadline

    def remaining(self) -> float | None:
        """Seconds left, not below 0; None when there is no deadline."""
        deadline = self._deadline
        return None if deadline is None else max(0.0, deadline - self.clock())
