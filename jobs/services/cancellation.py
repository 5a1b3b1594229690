"""Executions are ended: by hand, or by their timeout. With an execution its children end, as many levels as there are.

In two transactions: first the execution is CANCELLING, and nothing of it is given out or begins any more (statements
`claim_jobs`, `start_attempts`); then its jobs are cancelled, a batch at a time. When the last of them has ended it is
CANCELLED. A crash between the two is finished by the sweep.
"""

from contextlib import suppress
from uuid import UUID

import orjson
import structlog

from controlplane.core.transactions import isolate_row, retried_atomic
from jobs.errors import CancelRequested, ExecutionUnknown
from jobs.models import Execution
from jobs.services import guards, propagation
from jobs.sql import sql
from liveness.services.action_events import Subject, record_action
from liveness.states import Subject as SubjectType

log = structlog.get_logger()

BATCH = 1000


def cancel_execution(
    execution: UUID, by: str, owner: UUID | None = None, *, note: str = "", subject: Subject | None = None
) -> None:
    """An execution is CANCELLING until the last of its steps has ended. Asking again changes nothing. The `subject` is
    the job that was cancelled, where the execution is one's.

    Raises ExecutionUnknown, also when it is not the owner's (None: everybody's), and ExecutionEnded.
    """
    existing = Execution.objects.filter(pk=execution, **({} if owner is None else {"owner": owner})).first()
    if existing is None:
        raise ExecutionUnknown
    subject = subject or Subject(SubjectType.EXECUTION, execution, existing.name)
    if not stop_by_hand(execution, by, note, subject):
        existing.refresh_from_db(fields=["state"])
        with suppress(CancelRequested):
            guards.ensure_may_cancel_execution(existing)
    halt_tree(existing.root_id)
    log.info("Execution cancelled", execution=str(execution), actor=by, reason=note)


@retried_atomic
def stop_by_hand(execution: UUID, by: str, note: str, subject: Subject) -> list[UUID]:
    stopped = stop_executions([execution], "CANCELLED", f"cancelled by {by.partition(':')[2]}")
    if stopped:
        record_action(f"cancel_{subject.type}", by, note, subject)
    return stopped


def cancel_overdue_executions() -> dict[str, int]:
    """Executions past their timeout_seconds are cancelled, with EXECUTION_TIMEOUT; how many, if any."""
    count, after = 0, UUID(int=0)
    while due := sql.find_overdue_executions.fetch_rows(batch=BATCH, after=after):
        for row in due:
            message = f"exceeded its timeout of {row.timeout_seconds:g} s"
            with isolate_row("executions timed out", row.id):
                count += len(stop_executions([row.id], "EXECUTION_TIMEOUT", message))
                log.warning("Execution timed out", execution=str(row.id), reason=message)
        after = due[-1].id
    return {"CANCELLING": count} if count else {}


@retried_atomic
def stop_executions(executions: list[UUID], code: str, message: str) -> list[UUID]:
    """Running executions are CANCELLING, and their children; which."""
    sql.lock_roots.fetch_rows(executions=executions)
    error = orjson.dumps({"code": code, "message": message}).decode()
    stopped = [row.id for row in sql.cancel_executions.fetch_rows(executions=executions, error=error)]
    propagation.advance_executions(stopped)
    return stopped


def halt_all_trees() -> None:
    """Cancel the jobs of all executions that are CANCELLING: of each tree for itself."""
    after = UUID(int=0)
    while trees := sql.find_halting_trees.fetch_rows(batch=BATCH, after=after):
        for tree in trees:
            with isolate_row("executions cancelled", tree.id):
                halt_tree(tree.id)
        after = trees[-1].id


def halt_tree(root: UUID) -> None:
    """Cancel the jobs of the executions of a tree that are CANCELLING."""
    while halt_batch_of_tree(root) == BATCH:
        pass


@retried_atomic
def halt_batch_of_tree(root: UUID) -> int:
    rows = sql.halt_steps.after(sql.lock_roots).fetch_rows(executions=[root], root=root, batch=BATCH)
    propagation.advance_executions({row.execution for row in rows})
    return len(rows)


@retried_atomic
def cancel_blocked_step(step: UUID, execution: UUID, *, action: str, by: str, note: str) -> bool:
    """A step that waits for others is CANCELLED; whether it still did."""
    sql.lock_roots.fetch_rows(executions=[execution])
    was_blocked = bool(sql.cancel_blocked_step.fetch_rows(job=step, action=action, actor=by, note=note))
    propagation.advance_executions([execution])
    return was_blocked
