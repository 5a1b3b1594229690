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

from controlplane.core.transactions import atomic, is_cut_off, named
from jobs.conf import conf
from jobs.sql import sql
from liveness.conf import conf as liveness
from liveness.services.retention import Pruning, Span, events, heartbeats

log = structlog.get_logger()

BATCH = 500
EXECUTIONS_BATCH = 20
STEPS_BATCH = 5000
FIRST = UUID(int=0)


class PruneFailed(Exception):
    """Some rows could not be deleted; the others were."""

    def __init__(self, kinds: list[str], done: dict[str, int]) -> None:
        super().__init__(f"Not everything could be deleted of: {', '.join(kinds)}")
        self.done = done


class JobPruning(Pruning):
    @atomic
    def delete(self, span: Span) -> int:
        ids = [row.id for row in sql.rows("lock_old_jobs", after=span.after, last=span.last, **self.before)]
        # A statement of its own: it also sees the late reports that came before the jobs were held.
        return sql.rows("delete_jobs", ids=ids)[0].deleted


class ExecutionPruning(Pruning):
    @atomic
    def delete(self, span: Span) -> int:
        roots = [row.id for row in sql.rows("lock_old_executions", after=span.after, last=span.last, **self.before)]
        while steps := [row.id for row in sql.rows("list_steps", roots=roots, batch=STEPS_BATCH)]:
            sql.rows("delete_jobs", ids=steps)
        return sql.rows("delete_executions", roots=roots)[0].deleted


def prune(*, dry_run: bool = False, tell: Callable[[str, int, int], None] = lambda *_: None) -> dict[str, int]:
    """Delete what is past its retention; how many of what. With `dry_run`, only count it.

    Calls `tell(kind, deleted, total)` when a kind is counted, and after each batch.
    Raises PruneFailed at its end when a batch failed.
    """
    done: dict[str, int] = {}
    failed = []
    for pruning in prunings():
        spans = list(pruning.spans())
        total = sum(span.due for span in spans)
        done[pruning.name] = total if dry_run else 0
        tell(pruning.name, 0, total)
        for span in [] if dry_run else spans:
            deleted, is_whole = without_bad(pruning, span)
            done[pruning.name] += deleted
            if not is_whole:
                failed.append(pruning.name)
            tell(pruning.name, done[pruning.name], total)
    log.info("Would prune" if dry_run else "Pruned", **done)
    if failed:
        raise PruneFailed(sorted(set(failed)), done)
    return done


def without_bad(pruning: Pruning, span: Span) -> tuple[int, bool]:
    """Delete what is due in a span, and when that fails in each half of it: how many, and whether it was all."""
    try:
        return pruning.delete(span), True
    except DatabaseError as error:
        if is_cut_off(error):
            raise
        after, last = int(span.after), int(span.last)
        if last - after <= 1:
            named(f"pruning of {pruning.name}", span.last, error)
            return 0, False
    middle = type(span.after)(int=(after + last) // 2) if isinstance(span.after, UUID) else (after + last) // 2
    first, second = (
        without_bad(pruning, Span(span.after, middle, span.due)),
        without_bad(pruning, Span(middle, span.last, span.due)),
    )
    return first[0] + second[0], first[1] and second[1]


def prunings() -> list[Pruning]:
    """What there is to do, in order, as of one reading of the database's clock."""
    kept = {
        "jobs": conf().job_retention,
        "executions": conf().execution_retention,
        "servers": liveness().server_retention,
        "events": liveness().event_retention,
        "server_heartbeats": liveness().heartbeat_retention,
        "attempt_heartbeats": conf().heartbeat_retention,
    }
    before = sql.rows("read_retention_limits", **kept)[0]
    executions = {"executions": before.executions}
    return [
        ExecutionPruning("executions", sql, FIRST, executions, EXECUTIONS_BATCH),
        Pruning("slots", sql, 0, executions),
        jobs(before.jobs),
        Pruning("servers", sql, FIRST, {"servers": before.servers, "jobs": before.jobs, **executions}, BATCH),
        events(before.events),
        heartbeats(before.server_heartbeats, before.attempt_heartbeats),
    ]


def jobs(before: datetime | None) -> Pruning:
    return JobPruning("jobs", sql, FIRST, {"jobs": before}, BATCH)
