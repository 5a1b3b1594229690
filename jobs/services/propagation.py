"""What has ended moves on what waits for it: dependents, the execution, its hooks, its parent, a trigger's execution.

Always in the transaction in which it ended; what a crash or a hand in the database has torn all the same, the sweep
finds by state and passes on in the same way (jobs/services/execution_repair.py).

Locks are taken in one order everywhere: servers, the roots of trees of executions, jobs, attempts, and last the slots
of triggers, each by id; sweeps skip what is locked. The lock of a root is that of all in its tree that no worker holds:
executions, BLOCKED steps, those that run a child, those that have ended. So whoever is about to end a step takes the
root first, in the same round trip, and `advance_executions`, which asks for it again, waits for nobody. The lock of a
job is that of its live attempt; a heartbeat, which has no job, skips an attempt that is locked.
"""

from collections.abc import Iterable
from uuid import UUID

import structlog

from controlplane.agent.limits import SIZE_LIMIT
from jobs.services import executions
from jobs.services.evaluations import follow_up_evaluations
from jobs.services.hints import announce_work
from jobs.sql import sql
from jobs.sql.rows.heartbeats import EndedAttempts
from jobs.sql.rows.interventions import EndedAttempt, LockedJob
from jobs.sql.rows.sweep import ExpiredJobs, UnmatchedJobs
from jobs.states import JobKind

log = structlog.get_logger()


def propagate_ends(ended: Iterable[EndedAttempt | LockedJob]) -> None:
    """Pass on that jobs have ended, or may have: rows with `job`, `execution` and `kind`."""
    rows = list(ended)
    advance_executions({row.execution for row in rows if row.execution})
    if evaluations := [row.job for row in rows if row.kind == JobKind.TRIGGER]:
        follow_up_evaluations(evaluations)


PROPAGATED_COLUMNS = ("executions", "evaluations")


def propagate_counted_ends(counts: Iterable[EndedAttempts | ExpiredJobs | UnmatchedJobs]) -> None:
    """Pass on that jobs have ended: rows of how many did how, each with `executions` and `evaluations`."""
    rows = list(counts)
    advance_executions({execution for row in rows for execution in row.executions or []})
    if evaluations := [job for row in rows for job in row.evaluations or []]:
        follow_up_evaluations(evaluations)


def advance_executions(execution_ids: Iterable[UUID]) -> None:
    """Move these executions on, and the trees they are in as far as that reaches."""
    pending: list[UUID] = sorted(execution_ids)
    if not pending:
        return
    announce_work()  # dependents and hooks may begin
    roots = [row.id for row in sql.lock_roots.fetch_rows(executions=pending)]
    has_ended_child = True  # whether there may be a child whose end its parent has not heard
    while pending or has_ended_child:
        rows = sql.propagate_ends.fetch_rows(executions=pending, roots=roots, output_limit=SIZE_LIMIT)
        executions.begin_children([row.id for row in rows if row.what == "begins"])
        pending = sorted({row.execution for row in rows if row.what == "returns" and row.execution})
        has_ended_child = any(row.what == "ended child" for row in rows)
        for row in rows:
            if row.what in ("ended", "ended child"):
                log.info("Execution ended", execution=str(row.execution), state=row.state)
