"""The fence: the moment from which the jobs of this worker may run elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


def read_uptime() -> float:
    """Return seconds on a clock that never goes back and counts suspended time, if the system has one.

    The monotonic clock of Linux stops while a laptop or a virtual machine sleeps. The control plane does not sleep.
    """
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boottime is None else time.clock_gettime(boottime)


class Fence:
    """A deadline that each answered heartbeat renews, counted from the *start* of its request.

    The control plane stores the heartbeat at some moment after the request started, so only the start is safe. Thread
    safe.
    """

    def __init__(self, clock: Callable[[], float] = read_uptime) -> None:
        self.clock = clock
        self._lock = threading.Lock()
        self._deadline: float | None = None
        self._limit: float | None = None

    @property
    def deadline(self) -> float | None:
        """Deadline on `clock`. None means that jobs are never given away."""
        return self._deadline

    def reaper_deadline(self, timeout: float) -> float | None:
        """Return the deadline of the reapers: a little later, so that the agent can kill and report first.

        The control plane gives no job away for another 20 % of the `timeout` (seconds).
        """
        deadline = self._deadline
        return None if deadline is None else deadline + timeout * 0.05

    def renew_deadline(self, started: float, after: float | None, *, lifts: bool = False) -> None:
        """Renew the deadline after the response to a heartbeat that started at `started`.

        It is `after` seconds later. None means no deadline. `lifts` removes the limit of `shorten_deadline`, because
        the control plane knows about it.
        """
        with self._lock:
            if lifts:
                self._limit = None
            self._deadline = self._apply_limit(None if after is None else started + after)

    def shorten_deadline(self, after: float) -> None:
        """Limit the deadline to `after` seconds from now, even if a response on its way sets a later one."""
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
        """Return the seconds left, at least 0, or None if there is no deadline."""
        deadline = self._deadline
        return None if deadline is None else max(0.0, deadline - self.clock())
