"""The fence of a Celery worker, which has two witnesses.

Nobody takes a worker's messages without both the control plane's verdict and a mark in Redis, some seconds before. So
its code may go on while either answers: the control plane that it is alive, or Redis that there is no mark.
"""

from __future__ import annotations

from collections.abc import Callable

from controlplane.agent.fence import Fence, read_uptime

FIRST = 60.0  # seconds for a heart to start and to be answered; nobody gives away what an unknown worker holds so soon


class TwoWitnesses(Fence):
    """Thread safe. `moved` is called with each new deadline.

    `broker_decides`: the broker gives messages away by itself (RabbitMQ), so that only it is asked.
    """

    def __init__(
        self,
        condemned_for: float,
        moved: Callable[[float | None], None],
        clock: Callable[[], float] = read_uptime,
        *,
        broker_decides: bool = False,
    ) -> None:
        super().__init__(clock)
        self._condemned_for, self._moved, self._broker_decides = condemned_for, moved, broker_decides
        self._answered = False
        self._unmarked_until: float | None = None
        self._first = clock() + FIRST
        moved(self.deadline)

    @property
    def deadline(self) -> float | None:
        by_broker, by_control_plane = self._unmarked_until, self._deadline
        if self._answered and by_control_plane is None and not self._broker_decides:
            return None
        witnesses = (by_broker,) if self._broker_decides else (by_broker, by_control_plane)
        return max((at for at in witnesses if at is not None), default=self._first)

    def renew_deadline(self, started: float, after: float | None, *, lifts: bool = False) -> None:
        self._answered = True
        super().renew_deadline(started, after, lifts=lifts)
        self._moved(self.deadline)

    def shorten_deadline(self, after: float) -> None:
        if self._answered:
            super().shorten_deadline(after)
            self._moved(self.deadline)

    def unmarked(self, started: float) -> None:
        """Redis was asked at `started`, and there was no mark."""
        self._unmarked_until = max(self._unmarked_until or 0.0, started + self._condemned_for)
        self._moved(self.deadline)

    def has_passed(self) -> bool:
        deadline = self.deadline
        return deadline is not None and self.clock() >= deadline

    def control_plane_has_passed(self) -> bool:
        """The control plane's permission, which is all that its own jobs have: nobody asks Redis before giving them
        away."""
        return super().has_passed()

    def remaining_seconds(self) -> float | None:
        deadline = self.deadline
        return None if deadline is None else max(0.0, deadline - self.clock())
