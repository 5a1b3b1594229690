"""History of one server for its charts: its attempts, and the times between its heartbeats."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from jobs.sql.rows.server_history import ServerStep

ATTEMPTS_READ, BEATS_READ = 10_000, 100_000
"""Largest numbers of attempts and of heartbeats that the charts of a server read. Steps before those are unknown."""


@dataclass(frozen=True)
class Period:
    """Period of a chart, with the length of its steps in seconds."""

    since: datetime
    step: int
    points: int

    @property
    def seconds(self) -> int:
        return self.step * self.points

    @property
    def until(self) -> datetime:
        return self.since + timedelta(seconds=self.seconds)

    def params(self, now: datetime, oldest: UUID) -> dict[str, object]:
        """Return the parameters of `sql.read_server_history` besides the server.

        `oldest` is the first id of the attempts that are read.
        """
        return {
            "since": self.since,
            "now": now,
            "step": self.step,
            "points": self.points,
            "oldest": oldest,
            "attempts_read": ATTEMPTS_READ,
            "beats_read": BEATS_READ,
        }


@dataclass(frozen=True)
class ServerHistory:
    """Steps of a period, oldest first."""

    period: Period
    now: datetime
    steps: Sequence[ServerStep]

    @property
    def whole(self) -> int:
        """Return how many steps are over. The numbers of the others still grow."""
        return min(len(self.steps), int((self.now - self.period.since).total_seconds() // self.period.step))

    def at(self, place: int) -> datetime:
        return self.period.since + timedelta(seconds=self.period.step * place)
