"""Cancel executions with all their child executions, by hand or because of their timeout.

Two transactions: the first sets the execution to CANCELLING, so that no step of it is claimed or started any more
(statements `claim_jobs`, `start_attempts`). The second cancels its jobs, one batch at a time. The execution is
CANCELLED when the last job has ended. If the process crashes between the two, the sweep finishes the cancellation.
"""

from contextlib import suppress
from uuid import UUID

import structlog

from controlplane.core.json_bodies import write_json
from controlplane.core.transactions import isolate_row, retried_atomic
from jobs.errors import CancelRequested
from jobs.execution_errors import ExecutionUnknown
from jobs.models import Execution
from jobs.services import guards
from jobs.services.executions import BATCH, advance_executions, halt_tree
from jobs.sql import sql
from liveness.services.action_events import ActionSubject, record_action
from liveness.states import Subject as SubjectType

log = structlog.get_logger()


def cancel_execution(
    execution: UUID, by: str, owner: UUID | None = None, *, note: str = "", subject: ActionSubject | None = None
) -> None:
    """Cancel an execution. It is CANCELLING until the last of its steps has ended; a second call changes nothing.

    `owner` is the client whose executions may be cancelled (None: all). `subject` is the job that was cancelled, if
    the execution belongs to a job. Raises ExecutionUnknown and ExecutionEnded.
    """
    existing = Execution.objects.filter(pk=execution, **({} if owner is None else {"owner": owner})).first()
    if existing is None:
        raise ExecutionUnknown
    subject = subject or ActionSubject(SubjectType.EXECUTION, execution, existing.name)
    if not stop_by_hand(execution, by, note, subject):
        existing.refresh_from_db(fields=["state"])
        with suppress(CancelRequested):
            guards.ensure_may_cancel_execution(existing)
    halt_tree(existing.root_id)
    log.info("Execution cancelled", execution=str(execution), actor=by, reason=note)


@retried_atomic
def stop_by_hand(execution: UUID, by: str, note: str, subject: ActionSubject) -> list[UUID]:
    stopped = stop_executions([execution], "CANCELLED", f"cancelled by {by.partition(':')[2]}")
    if stopped:
        record_action(f"cancel_{subject.type}", by, note, subject)
    return stopped


def cancel_overdue_executions() -> dict[str, int]:
    """Cancel executions past their `timeout_seconds`, with the code EXECUTION_TIMEOUT. Return the numbers by state."""
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
    """Set running executions and their children to CANCELLING. Return their ids."""
    sql.lock_roots.fetch_rows(executions=executions)
    error = write_json({"code": code, "message": message}).decode()
    stopped = [row.id for row in sql.cancel_executions.fetch_rows(executions=executions, error=error)]
    advance_executions(stopped)
    return stopped


def halt_all_trees() -> None:
    """Cancel the jobs of all CANCELLING executions, tree by tree."""
    after = UUID(int=0)
    while trees := sql.find_halting_trees.fetch_rows(batch=BATCH, after=after):
        for tree in trees:
            with isolate_row("executions cancelled", tree.id):
                halt_tree(tree.id)
        after = trees[-1].id


@retried_atomic
def cancel_blocked_step(step: UUID, execution: UUID, *, action: str, by: str, note: str) -> bool:
    """Cancel a step that waits for other steps. Return False if it does not wait any more."""
    sql.lock_roots.fetch_rows(executions=[execution])
    was_blocked = bool(sql.cancel_blocked_step.fetch_rows(job=step, action=action, actor=by, note=note))
    advance_executions([execution])
    return was_blocked
