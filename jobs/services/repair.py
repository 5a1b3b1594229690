"""Executions that a crash, or a hand in the database, has torn go on through the normal path: cascade.py, once more.

Everything is found by state: an end that was not passed on, a child whose parent step has not ended, a step that waits
though all that it depends on has ended, an execution that is open though all of its steps have ended, a child that
never began, jobs that go on though their execution is being cancelled. One that has ended is not touched.
"""

from uuid import UUID

import structlog

from controlplane.core.transactions import atomic, for_itself
from jobs.services import cancellation, cascade, executions, triggers
from jobs.sql import sql

log = structlog.get_logger()

BATCH = 100


def repair() -> dict[str, int]:
    """Move on what is torn; how many executions, if any."""
    count, after = 0, UUID(int=0)
    while torn := sql.rows("find_torn_executions", batch=BATCH, after=after):
        for row in torn:
            with for_itself("executions repaired", row.id):
                mend(row.id)
                count += 1
        after = torn[-1].id
    after = UUID(int=0)
    while torn := sql.rows("find_torn_jobs", batch=BATCH, after=after):
        for row in torn:
            with for_itself("jobs repaired", row.id):
                count += mend_job(row.id, row.child)
        after = torn[-1].id
    cancellation.halt_all()
    after = UUID(int=0)
    while evaluations := [row.id for row in sql.rows("find_torn_evaluations", batch=BATCH, after=after)]:
        for evaluation in evaluations:
            with for_itself("evaluations followed up", evaluation):
                triggers.follow_up([evaluation])
        after = evaluations[-1]
    return {"REPAIRED": count} if count else {}


@atomic
def mend(execution: UUID) -> None:
    """Count anew what the steps of an execution wait for, then pass on what has ended."""
    sql.rows("lock_roots", executions=[execution])
    changed = sql.rows("mend_execution", execution=execution)
    executions.begin_children([row.child_of for row in changed if row.child_of])
    cascade.move_on([execution])
    log.warning("Execution repaired", execution=str(execution))


@atomic
def mend_job(job: UUID, child: UUID | None) -> bool:
    """A job that is an execution begins, or ends as its child did."""
    if child is None:
        executions.begin_children([job])
    else:
        sql.rows("lock_roots", executions=[child])
        sql.rows("mend_job", child=child)
        cascade.move_on([child])
    log.warning("Job repaired", job=str(job))
    return True
