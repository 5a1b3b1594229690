"""The fence of a Celery worker. It has two witnesses, the control plane and the broker.

Another heart returns a worker's messages only after the control plane's verdict and, some seconds before, a mark in the
broker. So the worker's code may go on while one of them answers: the control plane that the worker is alive, or the
broker that there is no mark.
"""

from __future__ import annotations

from collections.abc import Callable

from controlplane.agent.fence import Fence, read_uptime

FIRST = 60.0  # seconds for a heart to start and to get its first answer; no unknown worker is lost so soon


class TwoWitnesses(Fence):
    """Fence whose deadline either witness moves. Thread safe.

    `condemned_for`: seconds between a mark and the return of the messages. `moved` is called with each new deadline,
    which is on the uptime clock. `alive_for`: seconds after which RabbitMQ closes the connection of a silent worker and
    redelivers its messages; code may run only for this time after the latest look of the heart.
    """

    def __init__(
        self,
        condemned_for: float,
        moved: Callable[[float | None], None],
        clock: Callable[[], float] = read_uptime,
        *,
        alive_for: float | None = None,
    ) -> None:
        super().__init__(clock)
        self._condemned_for, self._moved, self._alive_for = condemned_for, moved, alive_for
        self._looked_at: float | None = None
        self._answered = False
        self._unmarked_until: float | None = None
        self._first = clock() + FIRST
        moved(self.deadline)

    @property
    def deadline(self) -> float | None:
        limits = (self._by_witnesses(), self._by_silence())
        return min((at for at in limits if at is not None), default=None)

    def _by_witnesses(self) -> float | None:
        if self._answered and self._deadline is None:
            return None
        return max((at for at in (self._unmarked_until, self._deadline) if at is not None), default=self._first)

    def _by_silence(self) -> float | None:
        if self._alive_for is None:
            return None
        return self._first if self._looked_at is None else self._looked_at + self._alive_for

    def record_look(self, at: float) -> None:
        """Record a look of the heart. It proves that neither the heart nor the worker's main process is frozen."""
        self._looked_at = at
        self._moved(self.deadline)

    def renew_deadline(self, started: float, after: float | None, *, lifts: bool = False) -> None:
        self._answered = True
        super().renew_deadline(started, after, lifts=lifts)
        self._moved(self.deadline)

    def shorten_deadline(self, after: float) -> None:
        if self._answered:
            super().shorten_deadline(after)
            self._moved(self.deadline)

    def record_unmarked(self, started: float) -> None:
        """Record that the broker was asked at `started` and had no mark."""
        self._unmarked_until = max(self._unmarked_until or 0.0, started + self._condemned_for)
        self._moved(self.deadline)

    def has_passed(self) -> bool:
        deadline = self.deadline
        return deadline is not None and self.clock() >= deadline

    def control_plane_has_passed(self) -> bool:
        """Return True if the control plane's permission has ended. Jobs depend on it alone, without the broker."""
        return super().has_passed()

    def remaining_seconds(self) -> float | None:
        deadline = self.deadline
        return None if deadline is None else max(0.0, deadline - self.clock())
