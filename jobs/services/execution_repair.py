"""Repairs executions that do not continue after a crash or a change by hand, with the normal path (propagation.py).

All are found by state:

- an end that was not propagated, or a child that has ended while its parent step has not
- a step that is BLOCKED although all its dependencies have ended
- an open execution whose steps have all ended
- a child that never began
- jobs that continue in an execution that is being cancelled

Executions that have ended are not changed.

Only a crash or a change by hand leaves such executions. So each sweep looks closely at a limited number of open
executions, and the next sweep continues behind them. Every sweep finds all ends that were not propagated.
"""

from uuid import UUID

import structlog

from controlplane.core.transactions import isolate_row, retried_atomic
from jobs.services import cancellation, executions
from jobs.services.evaluations import follow_up_evaluations
from jobs.sql import sql

log = structlog.get_logger()

BATCH = 100
LOOKED_AT = 5000
"""Number of open executions, or of blocked steps, that one sweep looks at closely."""
FIRST, LAST = UUID(int=0), UUID(int=2**128 - 1)


class RepairPosition:
    """Execution after which the next sweep of this process begins to look closely. None: it has made no sweep."""

    since: UUID | None = None


def repair_executions() -> dict[str, int]:
    """Repair all executions that do not continue. Return how many, if any."""
    since = RepairPosition.since or sql.pick_repair_start.fetch_only_row(most=LOOKED_AT).since or FIRST
    until = sql.read_repair_range.fetch_only_row(since=since, most=LOOKED_AT - 1).until
    count, after = 0, FIRST
    while stalled := sql.find_stalled_executions.fetch_rows(batch=BATCH, after=after, since=since, until=until or LAST):
        for row in stalled:
            with isolate_row("executions repaired", row.id):
                repair_execution(row.id)
                count += 1
        after = stalled[-1].id
    RepairPosition.since = until or FIRST
    after = FIRST
    while stalled_jobs := sql.find_stalled_jobs.fetch_rows(batch=BATCH, after=after):
        for job in stalled_jobs:
            with isolate_row("jobs repaired", job.id):
                count += repair_job(job.id, job.child)
        after = stalled_jobs[-1].id
    cancellation.halt_all_trees()
    after = FIRST
    while evaluations := [row.id for row in sql.find_stalled_evaluations.fetch_rows(batch=BATCH, after=after)]:
        for evaluation in evaluations:
            with isolate_row("evaluations followed up", evaluation):
                follow_up_evaluations([evaluation])
        after = evaluations[-1]
    return {"REPAIRED": count} if count else {}


@retried_atomic
def repair_execution(execution: UUID) -> None:
    """Count again what the steps of an execution wait for, then propagate its ends."""
    sql.lock_roots.fetch_rows(executions=[execution])
    changed = sql.reset_execution.fetch_rows(execution=execution)
    begins = [row.begins for row in changed if row.begins]
    executions.begin_without_worker(begins)
    executions.begin_loops(begins)
    executions.start_parked_items([execution])
    executions.advance_executions([execution], begun=[execution])
    log.warning("Execution repaired", execution=str(execution))


@retried_atomic
def repair_job(job: UUID, child: UUID | None) -> bool:
    """Begin the child of a job that is an execution, or end the job as its child ended."""
    if child is None:
        executions.begin_without_worker([job])
    else:
        sql.lock_roots.fetch_rows(executions=[child])
        sql.reset_child.fetch_rows(child=child)
        executions.advance_executions([child])
    log.warning("Job repaired", job=str(job))
    return True
