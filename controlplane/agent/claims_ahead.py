"""The number of jobs that an agent claims ahead: as many as its slots finish in 200 ms."""

from __future__ import annotations

import time
from collections.abc import Iterable

SHORT = 0.1  # mean seconds of a task up to which jobs are claimed ahead
SPAN = 0.2  # seconds of work that is claimed ahead: half of it is left for a claim and the reports of its starts
PATIENCE = 0.5  # seconds of one task, after which nothing waits behind it
WEIGHT = 0.2  # of the last task in the mean duration


class ClaimsAhead:
    """Main thread only. `most` is the limit of jobs; 0 means that none are claimed ahead."""

    def __init__(self, slots: int, most: int) -> None:
        self.slots, self._most = slots, most
        self._mean: float | None = None  # seconds of a task; None until one has ended

    @property
    def are_short(self) -> bool:
        """Return True while tasks end within milliseconds: then no line of the log is written for each."""
        return self._mean is not None and self._mean < SHORT

    def wanted(self, held: int) -> int:
        """Return how many jobs may be held beyond the slots, or 0 while `held` attempts are enough.

        Long tasks get none, however many slots there are: most of them would wait behind a slow task and go back.
        """
        if self._mean is None or not self.are_short:
            return 0
        target = min(self._most, int(SPAN * self.slots / max(self._mean, 1e-6)))
        return target if held - self.slots <= target / 2 else 0

    def record_end(self, begun_at: float | None) -> None:
        """Record the end of a task that began at this time (monotonic)."""
        if begun_at is not None:
            seconds = time.monotonic() - begun_at
            self._mean = seconds if self._mean is None else (1 - WEIGHT) * self._mean + WEIGHT * seconds

    def record_slow_task(self) -> None:
        """Claim nothing ahead until short tasks have ended again."""
        self._mean = max(self._mean or 0.0, 1.0)

    def is_slow(self, begun: Iterable[float | None]) -> bool:
        """Return True if every slot has run its task for so long that nothing may wait behind it."""
        at = self.slow_at(begun)
        return at is not None and time.monotonic() >= at

    def slow_at(self, begun: Iterable[float | None]) -> float | None:
        """Return when `is_slow` becomes true for tasks that began at these times (monotonic), or None."""
        known = [at for at in begun if at is not None]
        return max(known) + PATIENCE if known else None
