"""Deletes rows past their retention: executions and jobs, then servers (whose attempts are gone by then), then events.
Heartbeats go by partitions.

Several processes may run this at once: each row is deleted once, and locked rows are skipped or left to the next batch.
The key of a job is forgotten with the job: the same key then makes a new job.
"""

from collections.abc import Callable
from datetime import datetime
from uuid import UUID

import structlog
from django.db import DatabaseError

from controlplane.core.transactions import is_transient_error, record_left_out, retried_atomic
from jobs.conf import conf
from jobs.services.stored_bytes import counting
from jobs.sql import sql
from jobs.sql.rows.retention import RetentionLimits
from liveness.conf import conf as liveness
from liveness.services import partitions
from liveness.services.retention import IdRange, Pruning, event_pruning, prune_heartbeats

log = structlog.get_logger()

BATCH = 500
EXECUTIONS_BATCH = 20
STEPS_BATCH = 5000
BATCHES_BATCH = 5
FIRST = UUID(int=0)


class PruneFailed(Exception):
    """Rows could not be deleted. All others were."""

    def __init__(self, kinds: list[str], done: dict[str, int]) -> None:
        super().__init__(f"Some rows could not be deleted: {', '.join(kinds)}")
        self.done = done


class JobPruning(Pruning):
    @retried_atomic
    def delete(self, span: IdRange) -> int:
        ids = [row.id for row in sql.lock_old_jobs.fetch_rows(after=span.after, last=span.last, **self.before)]
        # A separate statement, so that it sees superseded reports that were stored before the jobs were locked.
        return counting(sql.delete_jobs).fetch_only_row(ids=ids).deleted


class ExecutionPruning(Pruning):
    @retried_atomic
    def delete(self, span: IdRange) -> int:
        roots = [row.id for row in sql.lock_old_executions.fetch_rows(after=span.after, last=span.last, **self.before)]
        while steps := [row.id for row in sql.list_steps.fetch_rows(roots=roots, batch=STEPS_BATCH)]:
            counting(sql.delete_jobs).fetch_rows(ids=steps)
        return counting(sql.delete_executions).fetch_only_row(roots=roots).deleted


def prune_old_rows(
    *, dry_run: bool = False, report_progress: Callable[[str, int, int], None] = lambda *_: None
) -> dict[str, int]:
    """Delete all rows past their retention. Return how many of each kind. With `dry_run`, only count them.

    Calls `report_progress(kind, deleted, total)` when a kind is counted, and after each batch. Raises PruneFailed at
    the end if a batch failed.
    """
    done: dict[str, int] = {}
    failed = []
    for pruning in list_prunings():
        spans = list(pruning.list_due_spans())
        total = sum(span.due for span in spans)
        done[pruning.name] = total if dry_run else 0
        report_progress(pruning.name, 0, total)
        for span in [] if dry_run else spans:
            deleted, is_whole = delete_span(pruning, span)
            done[pruning.name] += deleted
            if not is_whole:
                failed.append(pruning.name)
            report_progress(pruning.name, done[pruning.name], total)
    done |= prune_partitions(dry_run=dry_run, report_progress=report_progress)
    log.info("Would prune" if dry_run else "Pruned", **done)
    if failed:
        raise PruneFailed(sorted(set(failed)), done)
    return done


def prune_partitions(
    *, dry_run: bool = False, report_progress: Callable[[str, int, int], None] = lambda *_: None
) -> dict[str, int]:
    """Drop the partitions of heartbeats that are past their retention, and make those of the next days.

    Parameters and results are those of `prune_heartbeats`.
    """
    return prune_heartbeats(read_heartbeat_limits(), dry_run=dry_run, report_progress=report_progress)


def list_old_partitions() -> list[str]:
    """Return the names of the partitions that are past their retention."""
    return [
        name
        for table, before in read_heartbeat_limits().items()
        for name in partitions.list_old_partitions(table, before)
    ]


def delete_span(pruning: Pruning, span: IdRange) -> tuple[int, bool]:
    """Delete the due rows of a span; if that fails, try each half. Return how many, and whether all were deleted."""
    try:
        return pruning.delete(span), True
    except DatabaseError as error:
        if is_transient_error(error):
            raise
        after, last = int(span.after), int(span.last)
        if last - after <= 1:
            record_left_out(f"pruning of {pruning.name}", span.last, error)
            return 0, False
    middle = type(span.after)(int=(after + last) // 2) if isinstance(span.after, UUID) else (after + last) // 2
    first, second = (
        delete_span(pruning, IdRange(span.after, middle, span.due)),
        delete_span(pruning, IdRange(middle, span.last, span.due)),
    )
    return first[0] + second[0], first[1] and second[1]


def read_limits() -> RetentionLimits:
    """Return the times before which rows are past their retention, from one reading of the database's clock."""
    kept = {
        "jobs": conf().job_retention,
        "executions": conf().execution_retention,
        "servers": liveness().server_retention,
        "events": liveness().event_retention,
        "server_heartbeats": liveness().heartbeat_retention,
        "attempt_heartbeats": conf().heartbeat_retention,
        "batches": conf().batch_retention,
        "signals": conf().signal_kept,
    }
    return sql.read_retention_limits.fetch_only_row(**kept)


def list_prunings() -> list[Pruning]:
    """Return the prunings in their order."""
    before = read_limits()
    executions = {"executions": before.executions}
    return [
        ExecutionPruning("executions", sql.scan_executions, sql.delete_executions, FIRST, executions, EXECUTIONS_BATCH),
        Pruning("slots", sql.scan_slots, sql.delete_slots, 0, executions),
        Pruning("backfills", sql.scan_backfills, sql.delete_backfills, FIRST, executions, BATCH),
        job_pruning(before.jobs),
        Pruning(
            "servers",
            sql.scan_servers,
            sql.delete_servers,
            FIRST,
            {"servers": before.servers, "jobs": before.jobs, **executions},
            BATCH,
        ),
        Pruning("batches", sql.scan_batches, sql.delete_batches, FIRST, {"batches": before.batches}, BATCHES_BATCH),
        Pruning("signals", sql.scan_signals, sql.delete_signals, FIRST, {"signals": before.signals}, BATCH),
        event_pruning(before.events),
    ]


def read_heartbeat_limits() -> dict[str, datetime | None]:
    """Return for each table of heartbeats the time before which they are past their retention."""
    before = read_limits()
    return {partitions.SERVERS: before.server_heartbeats, partitions.ATTEMPTS: before.attempt_heartbeats}


def job_pruning(before: datetime | None) -> Pruning:
    return JobPruning("jobs", sql.scan_jobs, sql.delete_jobs, FIRST, {"jobs": before}, BATCH)
