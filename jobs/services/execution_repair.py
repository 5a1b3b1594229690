"""Executions that a crash, or a hand in the database, has torn go on through the normal path: propagation.py once more.

Everything is found by state: an end that was not passed on, a child whose parent step has not ended, a step that waits
though all that it depends on has ended, an execution that is open though all of its steps have ended, a child that
never began, jobs that go on though their execution is being cancelled. One that has ended is not touched.
"""

from uuid import UUID

import structlog

from controlplane.core.transactions import isolate_row, retried_atomic
from jobs.services import cancellation, executions, propagation
from jobs.services.evaluations import follow_up_evaluations
from jobs.sql import sql

log = structlog.get_logger()

BATCH = 100


def repair_executions() -> dict[str, int]:
    """Move on what is torn; how many executions, if any."""
    count, after = 0, UUID(int=0)
    while torn := sql.find_torn_executions.fetch_rows(batch=BATCH, after=after):
        for row in torn:
            with isolate_row("executions repaired", row.id):
                mend_execution(row.id)
                count += 1
        after = torn[-1].id
    after = UUID(int=0)
    while torn_jobs := sql.find_torn_jobs.fetch_rows(batch=BATCH, after=after):
        for job in torn_jobs:
            with isolate_row("jobs repaired", job.id):
                count += mend_job(job.id, job.child)
        after = torn_jobs[-1].id
    cancellation.halt_all_trees()
    after = UUID(int=0)
    while evaluations := [row.id for row in sql.find_torn_evaluations.fetch_rows(batch=BATCH, after=after)]:
        for evaluation in evaluations:
            with isolate_row("evaluations followed up", evaluation):
                follow_up_evaluations([evaluation])
        after = evaluations[-1]
    return {"REPAIRED": count} if count else {}


@retried_atomic
def mend_execution(execution: UUID) -> None:
    """Count anew what the steps of an execution wait for, then pass on what has ended."""
    sql.lock_roots.fetch_rows(executions=[execution])
    changed = sql.mend_execution.fetch_rows(execution=execution)
    executions.begin_children([row.child_of for row in changed if row.child_of])
    propagation.advance_executions([execution])
    log.warning("Execution repaired", execution=str(execution))


@retried_atomic
def mend_job(job: UUID, child: UUID | None) -> bool:
    """A job that is an execution begins, or ends as its child did."""
    if child is None:
        executions.begin_children([job])
    else:
        sql.lock_roots.fetch_rows(executions=[child])
        sql.mend_job.fetch_rows(child=child)
        propagation.advance_executions([child])
    log.warning("Job repaired", job=str(job))
    return True
