"""Delete rows that are past their retention, in batches that commit one by one, so that no lock is held for long.

A table is scanned in the order of its ids. This is nearly the order of time. Rows may be out of order if they were
written at the same time, or if the clock was set. The scan ends after the first batch without an old row. It therefore
needs no index on the time, and reads little more than it deletes. Rows out of order are deleted a day later.

Heartbeats are not deleted one by one: the partition of a whole day is dropped.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import structlog
from django.db import IntegrityError

from controlplane.core.statements import Statement, fetch_result_sets
from controlplane.core.transactions import retried_atomic
from liveness.services import partitions
from liveness.sql import sql

log = structlog.get_logger()

BATCH = 10_000


@dataclass(frozen=True)
class IdRange:
    """Range of ids above `after`, up to and including `last`. `due` is the number of its rows past their retention."""

    after: int | UUID
    last: int | UUID
    due: int


@dataclass(frozen=True)
class Pruning:
    """Deletion of one kind of rows. Rows older than the times in `before` are deleted; None keeps all rows."""

    name: str
    scan: Statement[Any]
    deletion: Statement[Any]
    first: int | UUID
    """Start value that is below every id."""
    before: dict[str, datetime | None]
    batch: int = BATCH
    """Rows of one scan."""

    def list_due_spans(self) -> Iterator[IdRange]:
        """Yield the ranges that have rows to delete, lowest ids first. Change nothing."""
        if not any(self.before.values()):
            return
        after, has_old = self.first, True
        while has_old:
            scan = self.scan.fetch_only_row(after=after, batch=self.batch, **self.before)
            if scan.due:
                yield IdRange(after, scan.last, scan.due)
            after, has_old = scan.last, scan.has_old

    @retried_atomic
    def delete(self, span: IdRange) -> int:
        """Delete the due rows of a range. Return how many this call deleted."""
        deleted: int = self.deletion.fetch_only_row(after=span.after, last=span.last, **self.before).deleted
        return deleted


class EventPruning(Pruning):
    @retried_atomic
    def delete(self, span: IdRange) -> int:
        statements = (sql.allow_event_deletion, self.deletion, sql.forbid_event_deletion)
        deleted: int = fetch_result_sets(*statements, after=span.after, last=span.last, **self.before)[1][0].deleted
        return deleted


def event_pruning(before: datetime | None) -> Pruning:
    return EventPruning("events", sql.scan_events, sql.delete_events, 0, {"events": before})


def prune_heartbeats(
    before: dict[str, datetime | None],
    *,
    dry_run: bool = False,
    report_progress: Callable[[str, int, int], None] = lambda *_: None,
) -> dict[str, int]:
    """Drop the day partitions that are past their retention, and make those of the next days.

    `before` maps each table to a time. Heartbeats older than that are deleted; None keeps all. Return the number of
    dropped `partitions`, and of `heartbeats` that were deleted from the default partitions. With `dry_run`, only count.
    A table that others use is left to the next run.
    """
    old = {table: partitions.list_old_partitions(table, limit) for table, limit in before.items()}
    total = sum(map(len, old.values()))
    rows = sum(partitions.count_old_default_rows(table, limit) for table, limit in before.items())
    done = {"heartbeats": rows, "partitions": total} if dry_run else {"heartbeats": 0, "partitions": 0}
    report_progress("heartbeats", 0, rows)
    report_progress("partitions", 0, total)
    for table, limit in before.items() if not dry_run else ():
        try:
            done["heartbeats"] += partitions.empty_default_partition(table, limit)
            report_progress("heartbeats", done["heartbeats"], rows)
            partitions.make_partitions(table)
            for name in old[table]:
                partitions.empty_partition(table, name)
            for name in old[table]:
                done["partitions"] += partitions.drop_partition(table, name)
                report_progress("partitions", done["partitions"], total)
        except partitions.TableInUse:
            log.warning("Partitions wait, because another transaction uses the table", table=table)
    return done


def make_room_for_heartbeats() -> None:
    """Make missing partitions at the start of a process. Do not wait for locks.

    If the default partition has rows, the next pruning moves them first.
    """
    for table in partitions.TABLES:
        try:
            if not partitions.has_rows(f"{table}_default"):
                partitions.make_partitions(table, tries=1)
        except (partitions.TableInUse, IntegrityError):
            log.info("Partitions are made later, because the table is in use", table=table)
