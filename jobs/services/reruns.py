"""Run an ended execution again, as a new execution: from the beginning, or from the steps that failed."""

from datetime import datetime
from typing import Any
from uuid import UUID

import structlog
from django.utils import timezone

from controlplane.core.transactions import retried_atomic
from jobs.errors import ExecutionEnded, ExecutionUnknown, KeyTaken, TryAgain
from jobs.models import Execution
from jobs.services import guards
from jobs.services.execution_rows import ExecutionPlan
from jobs.services.executions import begin_executions, list_steps_to_restart
from liveness.services.action_events import ActionSubject, record_action
from liveness.states import Subject as SubjectType

log = structlog.get_logger()


def rerun_execution(
    execution: UUID, by: str, owner: UUID | None = None, key: str | None = None, *, note: str = ""
) -> tuple[UUID, bool]:
    """Run an execution again from its beginning. Return the id of the new execution, and False if the key is known.

    `owner` is the client whose executions may be run again (None: all). A call with the same key returns the same
    execution. Raises ExecutionUnknown, ExecutionRunning, and KeyTaken if another execution has the key.
    """
    return begin_again(execution, by, owner, key, note, is_restart=False)


def restart_execution(
    execution: UUID, by: str, owner: UUID | None = None, key: str | None = None, *, note: str = ""
) -> tuple[UUID, bool]:
    """Run an execution again from where it failed or was cancelled. Return its new id, and whether it is new.

    Completed steps are kept with their output, unless they depend on a step that did not complete. The same applies to
    child executions. Everything else is as in `rerun_execution`. Also raise ExecutionEnded if there is nothing to
    restart.
    """
    return begin_again(execution, by, owner, key, note, is_restart=True)


@retried_atomic
def begin_again(
    execution: UUID, by: str, owner: UUID | None, key: str | None, note: str, *, is_restart: bool
) -> tuple[UUID, bool]:
    reached = Execution.objects.filter(pk=execution, **({} if owner is None else {"owner": owner}))
    before = reached.select_for_update(no_key=True).first()
    if before is None:
        raise ExecutionUnknown
    if before.loop is not None:
        raise ExecutionEnded("This execution runs the items of a step. Run the execution of that step again instead.")
    (guards.ensure_may_restart_execution if is_restart else guards.ensure_may_rerun_execution)(before)
    if key is not None and (known := find_begun_again(before, key, is_restart)):
        return known, False
    steps = list_steps_to_restart([execution])[execution] if is_restart else {}
    if is_restart and not steps:
        raise ExecutionEnded(f"All steps of this {before.state} execution completed: run it again instead.")
    plan = ExecutionPlan(
        drop_past_deadlines(before.definition),
        before.owner_id,
        before.inputs,
        before.namespace,
        key=key,
        rerun_of=before.pk,
        restarts=steps,
    )
    if begun := begin_executions([plan], is_limited=owner is not None):
        action = "restart_execution" if is_restart else "rerun_execution"
        record_action(action, by, note, ActionSubject(SubjectType.EXECUTION, before.pk, before.name))
        log.info("Execution begun again", execution=str(execution), new=str(begun[0]), actor=by, reason=note)
        return begun[0], True
    holder = Execution.objects.filter(owner=before.owner_id, key=key).first()
    if holder is None:
        raise TryAgain
    raise KeyTaken(f"The key {key!r} was used before, for another execution.", execution=str(holder.pk))


def find_begun_again(before: Execution, key: str, is_restart: bool) -> UUID | None:
    """Return the execution that an earlier call with this key began from `before`.

    The call must be of the same kind: rerun or restart.
    """
    # Executions of triggers have no owner, so their keys are not unique.
    for known in Execution.objects.filter(owner=before.owner_id, key=key, rerun_of=before):
        if known.steps.filter(restart_of_id__isnull=False).exists() == is_restart:
            return known.pk
    return None


def drop_past_deadlines(definition: dict[str, Any]) -> dict[str, Any]:
    """Return a definition without passed deadlines, so that no new step expires by an old deadline."""

    def drop_past_deadline(step: dict[str, Any]) -> dict[str, Any]:
        until = step.get("good_until")
        is_past = until is not None and datetime.fromisoformat(until) <= timezone.now()
        step = {name: value for name, value in step.items() if not (name == "good_until" and is_past)}
        if step["action"]["type"] == "execution":
            step["action"] = drop_past_deadlines(step["action"])
        return step

    parts: dict[str, Any] = {
        part: [drop_past_deadline(step) for step in definition[part]]
        for part in ("steps", "on_error")
        if part in definition
    }
    return {**definition, **parts}
