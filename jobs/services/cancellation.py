"""Executions are ended: by hand, or by their timeout. With an execution its children end, as many levels as there are.

In two transactions: first the execution is CANCELLING, and nothing of it is given out or begins any more (statements
`claim_jobs`, `start_attempts`); then its jobs are cancelled, a batch at a time. When the last of them has ended it is
CANCELLED. A crash between the two is finished by the sweep.
"""

from uuid import UUID

import orjson
import structlog

from controlplane.core.transactions import atomic, for_itself
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
    halt(found.root_id)
    log.info("Execution cancelled", execution=str(execution), actor=by)


def time_out() -> dict[str, int]:
    """Executions past their timeout_seconds are cancelled, with EXECUTION_TIMEOUT; how many, if any."""
    count, after = 0, UUID(int=0)
    while due := sql.rows("find_overdue_executions", batch=BATCH, after=after):
        for row in due:
            message = f"exceeded its timeout of {row.timeout_seconds:g} s"
            with for_itself("executions timed out", row.id):
                count += len(stop([row.id], "EXECUTION_TIMEOUT", message))
                log.warning("Execution timed out", execution=str(row.id), reason=message)
        after = due[-1].id
    return {"CANCELLING": count} if count else {}


@atomic
def stop(executions: list[UUID], code: str, message: str) -> list[UUID]:
    """Running executions are CANCELLING, and their children; which."""
    sql.rows("lock_roots", executions=executions)
    error = orjson.dumps({"code": code, "message": message}).decode()
    stopped = [row.id for row in sql.rows("cancel_executions", executions=executions, error=error)]
    cascade.move_on(stopped)
    return stopped


def halt_all() -> None:
    """Cancel the jobs of all executions that are CANCELLING: of each tree for itself."""
    after = UUID(int=0)
    while trees := sql.rows("find_halting_trees", batch=BATCH, after=after):
        for tree in trees:
            with for_itself("executions cancelled", tree.id):
                halt(tree.id)
        after = trees[-1].id


def halt(root: UUID) -> None:
    """Cancel the jobs of the executions of a tree that are CANCELLING."""
    while halt_some(root) == BATCH:
        pass


@atomic
def halt_some(root: UUID) -> int:
    rows = sql.rows("lock_roots", "halt_steps", executions=[root], root=root, batch=BATCH)
    cascade.move_on({row.execution for row in rows})
    return len(rows)


@atomic
def cancel_blocked(step: UUID, execution: UUID) -> bool:
    """A step that waits for others is CANCELLED; whether it still did."""
    sql.rows("lock_roots", executions=[execution])
    was_blocked = bool(sql.rows("cancel_blocked_step", job=step))
    cascade.move_on([execution])
    return was_blocked
