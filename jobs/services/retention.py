"""What is past its retention goes: executions and jobs, then servers, which their attempts kept, then events and
heartbeats.

Any number may run at once: each row goes once, and what one holds, the others skip or wait a batch for.
With its job a key is forgotten: handed in again, it makes a new job.
"""

from collections.abc import Callable
from datetime import datetime
from uuid import UUID

import structlog
from django.db import DatabaseError

from controlplane.core.transactions import is_transient_error, record_left_out, retried_atomic
from jobs.conf import conf
from jobs.sql import sql
from liveness.conf import conf as liveness
from liveness.services.retention import Pruning, Span, event_pruning, heartbeat_pruning

log = structlog.get_logger()

BATCH = 500
EXECUTIONS_BATCH = 20
STEPS_BATCH = 5000
BATCHES_BATCH = 5
FIRST = UUID(int=0)


class PruneFailed(Exception):
    """Some rows could not be deleted; the others were."""

    def __init__(self, kinds: list[str], done: dict[str, int]) -> None:
        super().__init__(f"Not everything could be deleted of: {', '.join(kinds)}")
        self.done = done


class JobPruning(Pruning):
    @retried_atomic
    def delete(self, span: Span) -> int:
        ids = [row.id for row in sql.lock_old_jobs.fetch_rows(after=span.after, last=span.last, **self.before)]
        # A statement of its own: it also sees the superseded reports that came before the jobs were held.
        return sql.delete_jobs.fetch_only_row(ids=ids).deleted


class ExecutionPruning(Pruning):
    @retried_atomic
    def delete(self, span: Span) -> int:
        roots = [row.id for row in sql.lock_old_executions.fetch_rows(after=span.after, last=span.last, **self.before)]
        while steps := [row.id for row in sql.list_steps.fetch_rows(roots=roots, batch=STEPS_BATCH)]:
            sql.delete_jobs.fetch_rows(ids=steps)
        return sql.delete_executions.fetch_only_row(roots=roots).deleted


def prune_old_rows(
    *, dry_run: bool = False, report_progress: Callable[[str, int, int], None] = lambda *_: None
) -> dict[str, int]:
    """Delete what is past its retention; how many of what. With `dry_run`, only count it.

    Calls `report_progress(kind, deleted, total)` when a kind is counted, and after each batch.
    Raises PruneFailed at its end when a batch failed.
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
    log.info("Would prune" if dry_run else "Pruned", **done)
    if failed:
        raise PruneFailed(sorted(set(failed)), done)
    return done


def delete_span(pruning: Pruning, span: Span) -> tuple[int, bool]:
    """Delete what is due in a span, and when that fails in each half of it: how many, and whether it was all."""
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
        delete_span(pruning, Span(span.after, middle, span.due)),
        delete_span(pruning, Span(middle, span.last, span.due)),
    )
    return first[0] + second[0], first[1] and second[1]


def list_prunings() -> list[Pruning]:
    """What there is to do, in order, as of one reading of the database's clock."""
    kept = {
        "jobs": conf().job_retention,
        "executions": conf().execution_retention,
        "servers": liveness().server_retention,
        "events": liveness().event_retention,
        "server_heartbeats": liveness().heartbeat_retention,
        "attempt_heartbeats": conf().heartbeat_retention,
        "batches": conf().batch_retention,
    }
    before = sql.read_retention_limits.fetch_only_row(**kept)
    executions = {"executions": before.executions}
    return [
        ExecutionPruning("executions", sql.scan_executions, sql.delete_executions, FIRST, executions, EXECUTIONS_BATCH),
        Pruning("slots", sql.scan_slots, sql.delete_slots, 0, executions),
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
        event_pruning(before.events),
        heartbeat_pruning(before.server_heartbeats, before.attempt_heartbeats),
    ]


def job_pruning(before: datetime | None) -> Pruning:
    return JobPruning("jobs", sql.scan_jobs, sql.delete_jobs, FIRST, {"jobs": before}, BATCH)
