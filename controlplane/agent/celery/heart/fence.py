"""The fence of a Celery worker: the deadline for its code.

Two witnesses can extend it, the control plane and the broker. Before another heart returns a worker's messages, the
control plane must have declared the worker lost, and a mark must have been in the broker for some seconds. So the
worker's code may continue while one of two answers arrives: the control plane answers that the worker is alive, or the
broker answers that there is no mark.
"""

from __future__ import annotations

from collections.abc import Callable

from controlplane.agent.fence import Fence, read_uptime

FIRST = 60.0  # seconds in which a heart starts and gets its first response; no unknown worker is declared lost so soon


class TwoWitnesses(Fence):
    """Fence with a deadline that either witness can move. It is thread safe.

    `condemned_for` is the number of seconds between a mark and the return of the messages. `moved` is called with each
    new deadline (on the uptime clock). `alive_for` is the number of seconds after which RabbitMQ closes the connection
    of a silent worker and redelivers its messages. Code may run only for this time after the latest look of the heart.
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
        """Record a look of the heart at its worker.

        It proves that neither the heart nor the worker's main process is frozen.
        """
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
        """Record that the broker had no mark. It was asked at the time `started`."""
        self._unmarked_until = max(self._unmarked_until or 0.0, started + self._condemned_for)
        self._moved(self.deadline)

    def has_passed(self) -> bool:
        deadline = self.deadline
        return deadline is not None and self.clock() >= deadline

    def control_plane_has_passed(self) -> bool:
        """Return True if the permission from the control plane has ended.

        Jobs depend only on this permission, not on the broker.
        """
        return super().has_passed()

    def remaining_seconds(self) -> float | None:
        deadline = self.deadline
        return None if deadline is None else max(0.0, deadline - self.clock())
