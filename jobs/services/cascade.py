"""What has ended moves on what waits for it: dependents, the execution, its hooks, its parent, a trigger's execution.

Always in the transaction in which it ended; what a crash or a hand in the database has torn all the same, the sweep
finds by state and passes on in the same way (jobs/services/repair.py).

Locks are taken in one order everywhere: servers, the roots of trees of executions, jobs, attempts, and last the slots
of triggers, each by id; sweeps skip what is locked. The lock of a root is that of all in its tree that no worker holds:
executions, BLOCKED steps, those that run a child, those that have ended. So whoever is about to end a step takes the
root first, in the same round trip, and `move_on`, which asks for it again, waits for nobody. The lock of a job is that
of its live attempt; a heartbeat, which has no job, skips an attempt that is locked.
"""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

import structlog

from jobs.services import executions, triggers
from jobs.services.reports import SIZE_LIMIT
from jobs.sql import sql
from jobs.states import JobKind

log = structlog.get_logger()


def run(ended: Iterable[Any]) -> None:
    """Pass on that jobs have ended, or may have: rows with `job`, `execution` and `kind`."""
    rows = list(ended)
    move_on({row.execution for row in rows if row.execution})
    if evaluations := [row.job for row in rows if row.kind == JobKind.TRIGGER]:
        triggers.follow_up(evaluations)


PASSED_ON = ("executions", "evaluations")


def run_counted(counts: Iterable[Any]) -> None:
    """Pass on that jobs have ended: rows of how many did how, each with `executions` and `evaluations`."""
    rows = list(counts)
    move_on({execution for row in rows for execution in row.executions or []})
    if evaluations := [job for row in rows for job in row.evaluations or []]:
        triggers.follow_up(evaluations)


def move_on(found: Iterable[UUID]) -> None:
    """Move these executions on, and the trees they are in as far as that reaches."""
    look: list[UUID] = sorted(found)
    if not look:
        return
    roots = [row.id for row in sql.rows("lock_roots", executions=look)]
    is_told = True  # whether there may be a child whose end its parent has not heard
    while look or is_told:
        rows = sql.rows("propagate_ends", executions=look, roots=roots, output_limit=SIZE_LIMIT)
        executions.begin_children([row.id for row in rows if row.what == "begins"])
        look = sorted({row.execution for row in rows if row.what == "returns" and row.execution})
        is_told = any(row.what == "ended child" for row in rows)
        for row in rows:
            if row.what in ("ended", "ended child"):
                log.info("Execution ended", execution=str(row.execution), state=row.state)
