"""Selectors of the history for charts. They read only counts (services/history.py), never jobs."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from jobs.conf import HISTORY_INTERVAL
from jobs.history import KEYS_KEPT, Dimension, Span, Window, add_counts, percentile
from jobs.sql import sql
from jobs.sql.rows.history import HistoryPoint

OUTCOMES = ("completed", "failed", "cancelled", "expired", "skipped")


@dataclass(frozen=True)
class Point:
    """Point of a chart: one step of a window.

    The numbers of waiting and running jobs are None if they were not sampled.
    """

    at: datetime
    ended: Mapping[str, int]
    """Number of jobs that ended, by outcome."""
    lost: int
    moved: int
    waited_p50: float | None
    waited_p95: float | None
    waiting: float | None
    running: float | None
    slots_used: float | None
    slots_free: float | None


@dataclass(frozen=True)
class History:
    window: Window
    now: datetime
    points: list[Point]

    @property
    def whole(self) -> int:
        """Return how many points are complete and counted. Later points still grow."""
        counted = self.now - timedelta(seconds=self.window.step + HISTORY_INTERVAL)
        return sum(point.at <= counted for point in self.points)

    @property
    def is_empty(self) -> bool:
        """Return True if nothing was counted within the window."""
        return all(point.waiting is None and not any(point.ended.values()) for point in self.points)


@dataclass(frozen=True)
class KeyHistory:
    """Counts of the jobs with one tag or action that ended within a window.

    The empty key stands for all other tags or actions.
    """

    key: str
    jobs: int
    ended: Mapping[str, int]
    waited_p50: float | None
    waited_p95: float | None
    took_p50: float | None
    took_p95: float | None

    @property
    def failure_rate(self) -> float | None:
        """Return the share of failed jobs among the completed and failed jobs, or None if there are none."""
        judged = self.ended["completed"] + self.ended["failed"]
        return self.ended["failed"] / judged if judged else None


def read_history(window: Window, cluster: str = "") -> History:
    """Return the history of a window, in one cluster or (empty) in all. One query."""
    rows = sql.read_history.fetch_rows(seconds=window.seconds, step=window.step, span=window.span, cluster=cluster)
    return build_history(window, rows)


def build_history(window: Window, rows: list[HistoryPoint]) -> History:
    """Build the history from rows of `sql.read_history`, with percentiles of the durations."""
    points = []
    for row in rows:
        waited = add_counts(json.loads(row.waited or "[]"))
        points.append(
            Point(
                at=row.at,
                ended=count_outcomes(row),
                lost=row.lost,
                moved=row.moved,
                waited_p50=percentile(waited, 0.5),
                waited_p95=percentile(waited, 0.95),
                waiting=row.waiting,
                running=row.running,
                slots_used=row.slots_used,
                slots_free=row.slots_free,
            )
        )
    return History(window, rows[0].now, points)


def read_history_by(dimension: Dimension, window: Window, limit: int = KEYS_KEPT) -> tuple[list[KeyHistory], int]:
    """Return counts of ended jobs by tag or action, most failures first, and the number of left-out keys."""
    return read_histories_by([dimension], window, limit)[dimension]


def read_histories_by(
    dimensions: Collection[Dimension], window: Window, limit: int
) -> dict[Dimension, tuple[list[KeyHistory], int]]:
    """Return `read_history_by()` for several dimensions, in one query.

    Windows above an hour use hourly counts and begin at a full hour.
    """
    span = Span.MINUTE if window.seconds <= 3600 else Span.HOUR
    rows = sql.read_history_by_key.fetch_rows(
        seconds=window.seconds, span=span, dimensions=list(dimensions), limit=limit
    )
    found: dict[Dimension, tuple[list[KeyHistory], int]] = {dimension: ([], 0) for dimension in dimensions}
    for row in rows:
        waited, took = json.loads(row.waited or "{}"), json.loads(row.took or "{}")
        entries, _ = found[Dimension(row.dimension)]
        entries.append(
            KeyHistory(
                key=row.key,
                jobs=row.jobs,
                ended=count_outcomes(row),
                waited_p50=percentile(waited, 0.5),
                waited_p95=percentile(waited, 0.95),
                took_p50=percentile(took, 0.5),
                took_p95=percentile(took, 0.95),
            )
        )
        found[Dimension(row.dimension)] = entries, row.others
    return found


def count_outcomes(row: Any) -> dict[str, int]:
    return {outcome: getattr(row, outcome) for outcome in OUTCOMES}
