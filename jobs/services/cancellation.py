"""Executions are ended: by hand, or by their timeout. With an execution its children end, as many levels as there are.

In two transactions: first the execution is CANCELLING, so that nothing of it begins any more; then its jobs are
cancelled one after the other, as any job is. When the last of them has ended it is CANCELLED. A crash between the
two is finished by the sweep.
"""

from uuid import UUID

import orjson
import structlog
from django.db import transaction

from jobs import states
from jobs.errors import ExecutionEnded, ExecutionUnknown
from jobs.models import Execution
from jobs.services import cascade
from jobs.sql import sql

log = structlog.get_logger()

BATCH = 1000


def cancel(execution: UUID, by: str, owner: UUID | None = None) -> None:
    """An execution is CANCELLING until the last of its steps has ended. Asking again changes nothing.

    Raises ExecutionUnknown, also when it is not the owner's (None: everybody's), and ExecutionEnded.
    """
    found = Execution.objects.filter(pk=execution, **({} if owner is None else {"owner": owner})).first()
    if found is None:
        raise ExecutionUnknown
    if not stop([execution], "CANCELLED", f"cancelled by {by.partition(':')[2]}"):
        found.refresh_from_db(fields=["state"])
        if found.state in states.OVER:
            raise ExecutionEnded(f"This execution is {found.state}: nothing changes it any more.", state=found.state)
    halt([found.root_id])
    log.info("Execution cancelled", execution=str(execution), actor=by)


def time_out() -> dict[str, int]:
    """Executions past their timeout_seconds are cancelled, with EXECUTION_TIMEOUT; how many, if any."""
    count = 0
    while due := sql.rows("execution_overdue", batch=BATCH):
        for row in due:
            message = f"exceeded its timeout of {row.timeout_seconds:g} s"
            count += len(stop([row.id], "EXECUTION_TIMEOUT", message))
            log.warning("Execution timed out", execution=str(row.id), reason=message)
        if len(due) < BATCH:
            break
    return {"CANCELLING": count} if count else {}


@transaction.atomic
def stop(executions: list[UUID], code: str, message: str) -> list[UUID]:
    """Running executions are CANCELLING, and their children; which."""
    sql.rows("cascade_lock", executions=executions)
    error = orjson.dumps({"code": code, "message": message}).decode()
    stopped = [row.id for row in sql.rows("execution_cancel", executions=executions, error=error)]
    cascade.move_on(stopped)
    return stopped


def halt(roots: list[UUID] | None = None) -> int:
    """Cancel the jobs of executions that are CANCELLING, in some trees or in all; how many."""
    count = 0
    while True:
        with transaction.atomic():
            rows = sql.rows("execution_halt", roots=roots, batch=BATCH)
            cascade.move_on({row.execution for row in rows})
        count += len(rows)
        if len(rows) < BATCH:
            return count


@transaction.atomic
def cancel_blocked(step: UUID, execution: UUID) -> bool:
    """A step that waits for others is CANCELLED; whether it still did."""
    sql.rows("cascade_lock", executions=[execution])
    was_blocked = bool(sql.rows("cancel_blocked", job=step))
    cascade.move_on([execution])
    return was_blocked
