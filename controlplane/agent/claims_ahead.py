"""The number of jobs that an agent claims ahead: as many as its slots finish in 200 ms."""

from __future__ import annotations

import time
from collections.abc import Sequence

SHORT = 0.1  # mean seconds of a task up to which jobs are claimed ahead
SPAN = 0.2  # seconds of work that is claimed ahead: half of it is left for a claim and the reports of its starts
PATIENCE = 0.5  # seconds after which a task is slow, and nothing waits behind it
LONGEST_WAIT = 1.0  # seconds of work that may wait beyond the slots
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

    def wanted(self, held: int, begun: Sequence[float] = ()) -> int:
        """Return how many jobs may be held beyond the slots, or 0 while `held` attempts are enough.

        `begun` has the time (monotonic) at which the task of each busy slot began. A slot whose task is slow does not
        count. While tasks are long, nothing is claimed ahead: most jobs would wait behind a slow one and go back.
        """
        if self._mean is None or not self.are_short:
            return 0
        target = min(self._most, int(SPAN * self._count_quick_slots(begun) / max(self._mean, 1e-6)))
        return target if held - self.slots <= target / 2 else 0

    def _count_quick_slots(self, begun: Sequence[float]) -> int:
        """Return the number of slots without a slow task."""
        now = time.monotonic()
        return max(0, self.slots - sum(now >= at + PATIENCE for at in begun))

    def record_end(self, begun_at: float | None) -> None:
        """Record the end of a task that began at this time (monotonic)."""
        if begun_at is not None:
            seconds = time.monotonic() - begun_at
            self._mean = seconds if self._mean is None else (1 - WEIGHT) * self._mean + WEIGHT * seconds

    def record_slow_task(self) -> None:
        """Claim nothing ahead until short tasks have ended again."""
        self._mean = max(self._mean or 0.0, 1.0)

    def count_kept(self, begun: Sequence[float]) -> int:
        """Return how many jobs may wait beyond the slots: what those without a slow task finish in a second."""
        return int(LONGEST_WAIT * self._count_quick_slots(begun) / max(self._mean or 0.0, 1e-6))

    def slow_at(self, begun: Sequence[float]) -> float | None:
        """Return when the task of one more slot becomes slow (monotonic), or None."""
        now = time.monotonic()
        return min((at + PATIENCE for at in begun if at + PATIENCE > now), default=None)
