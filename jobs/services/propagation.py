"""Propagates ends: to dependent steps, the execution, its hooks, its parent step, and the execution of a trigger.

This always happens in the transaction of the end. If a crash or a change by hand prevented it, the sweep finds the rows
by state and propagates them in the same way (jobs/services/execution_repair.py).

Locks are taken in one order everywhere: servers, roots of execution trees, jobs, attempts, slots of triggers, keys of
limits, each by id. Sweeps skip locked rows. The lock of a root covers everything in its tree that no worker holds:
executions, BLOCKED steps, steps that run without a worker, ended steps. A transaction that ends a step locks the root
first, in the same round trip; `advance_executions` then locks it again without a wait. The lock of a job covers its
live attempt. A heartbeat locks no job, so it skips locked attempts.
"""

from collections.abc import Iterable

from jobs.services import limits
from jobs.services.evaluations import follow_up_evaluations
from jobs.services.executions import advance_executions
from jobs.sql.rows.deadlines import SweptJobs
from jobs.sql.rows.heartbeats import EndedAttempts
from jobs.sql.rows.interventions import EndedAttempt, LockedJob
from jobs.sql.rows.sweep import UnmatchedJobs
from jobs.states import JobKind


def propagate_ends(ended: Iterable[EndedAttempt | LockedJob]) -> None:
    """Propagate the ends of jobs that have ended, or may have. Each row has `job`, `execution` and `kind`."""
    rows = list(ended)
    if any(row.is_limited for row in rows):
        limits.settle_soon()
    advance_executions({row.execution for row in rows if row.execution})
    if evaluations := [row.job for row in rows if row.kind == JobKind.TRIGGER]:
        follow_up_evaluations(evaluations)


PROPAGATED_COLUMNS = ("executions", "evaluations")


def propagate_counted_ends(counts: Iterable[EndedAttempts | SweptJobs | UnmatchedJobs]) -> None:
    """Propagate the ends of counted jobs. Each row has the ids of their `executions` and `evaluations`."""
    rows = list(counts)
    if any(isinstance(row, EndedAttempts) and row.is_limited for row in rows):
        limits.settle_soon()
    advance_executions({execution for row in rows for execution in row.executions or []})
    if evaluations := [job for row in rows for job in row.evaluations or []]:
        follow_up_evaluations(evaluations)
