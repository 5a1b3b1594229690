"""Self-fencing: the moment from which our work may be running elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


def read_uptime() -> float:
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

    def __init__(self, clock: Callable[[], float] = read_uptime) -> None:
        self.clock = clock
        self._lock = threading.Lock()
        self._deadline: float | None = None
        self._limit: float | None = None

    @property
    def deadline(self) -> float | None:
        """On `clock`; None: nothing is ever given away."""
        return self._deadline

    def renew_deadline(self, started: float, after: float | None, *, lifts: bool = False) -> None:
        """A beat begun at `started` was answered: good for `after` seconds from then (None: for ever).

        `lifts`: the answer knows why it was shortened.
        """
        with self._lock:
            if lifts:
                self._limit = None
            self._deadline = self._apply_limit(None if after is None else started + after)

    def shorten_deadline(self, after: float) -> None:
        """Good for no longer than `after` seconds from now, whatever an answer that is under way says."""
        with self._lock:
            self._limit = self.clock() + after
            self._deadline = self._apply_limit(self._deadline)

    def _apply_limit(self, deadline: float | None) -> float | None:
        limits = [at for at in (deadline, self._limit) if at is not None]
        return min(limits, default=None)

    def has_passed(self) -> bool:
        deadline = self._deadline
        return deadline is not None and self.clock() >= deadline

    def remaining_seconds(self) -> float | None:
        """Seconds left, not below 0; None when there is no deadline."""
        deadline = self._deadline
        return None if deadline is None else max(0.0, deadline - self.clock())
