"""Deleting what is past its retention, in batches that commit one by one, so that no lock is held for long.

A table is walked in the order of its ids, which is the order of time but for what was written at once or under
a clock that was set. The walk ends after the first batch in which everything is young, so a day's work is what
the day left behind, without an index on the time; what was out of order goes a day later.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from controlplane.core.statements import Statement, fetch_result_sets
from controlplane.core.transactions import retried_atomic
from liveness.sql import sql

BATCH = 10_000


@dataclass(frozen=True)
class Span:
    """Neighbours in the order of ids: those after the one, up to and with the last; so many of them are due."""

    after: int | UUID
    last: int | UUID
    due: int


@dataclass(frozen=True)
class Pruning:
    """One kind of rows, and the moments before which they are past their retention; None keeps all."""

    name: str
    scan: Statement[Any]
    deletion: Statement[Any]
    first: int | UUID
    """Comes before every id."""
    before: dict[str, datetime | None]
    batch: int = BATCH
    """Rows looked at at once."""

    def list_due_spans(self) -> Iterator[Span]:
        """Where something is due, from the oldest id on. Changes nothing."""
        if not any(self.before.values()):
            return
        after, has_old = self.first, True
        while has_old:
            scan = self.scan.fetch_only_row(after=after, batch=self.batch, **self.before)
            if scan.due:
                yield Span(after, scan.last, scan.due)
            after, has_old = scan.last, scan.has_old

    @retried_atomic
    def delete(self, span: Span) -> int:
        """Delete what is due there; how many. What someone else has deleted meanwhile is not counted again."""
        return self.deletion.fetch_only_row(after=span.after, last=span.last, **self.before).deleted


class EventPruning(Pruning):
    @retried_atomic
    def delete(self, span: Span) -> int:
        statements = (sql.allow_event_deletion, self.deletion, sql.forbid_event_deletion)
        return fetch_result_sets(*statements, after=span.after, last=span.last, **self.before)[1][0].deleted


def heartbeat_pruning(servers: datetime | None, attempts: datetime | None) -> Pruning:
    """The heartbeats of servers before the one moment, and those of attempts before the other."""
    return Pruning(
        "heartbeats", sql.scan_heartbeats, sql.delete_heartbeats, 0, {"servers": servers, "attempts": attempts}
    )


def event_pruning(before: datetime | None) -> Pruning:
    return EventPruning("events", sql.scan_events, sql.delete_events, 0, {"events": before})
