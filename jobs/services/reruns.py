"""Run an ended execution again, as a new execution: from the beginning, or from the steps that failed."""

from datetime import datetime
from typing import Any
from uuid import UUID

import structlog
from django.utils import timezone

from controlplane.core.transactions import retried_atomic
from jobs.choices import HookOf
from jobs.errors import ImpossibleChange, KeyTaken, TryAgain
from jobs.execution_errors import ExecutionEnded, ExecutionUnknown
from jobs.models import Execution
from jobs.services import drafts, guards
from jobs.services.changes import show_value
from jobs.services.execution_rows import PAYLOAD_BYTES_LIMIT, ExecutionPlan, count_payload_bytes
from jobs.services.executions import begin_executions, list_steps_to_restart
from liveness.services.action_events import ActionSubject, record_action
from liveness.states import Subject as SubjectType

log = structlog.get_logger()

STEPS_NAMED = 20


def rerun_execution(
    execution: UUID, by: str, owner: UUID | None = None, key: str | None = None, *, note: str = ""
) -> tuple[UUID, bool]:
    """Run an execution again from its beginning. Return the id of the new execution, and False if the key is known.

    `owner` is the client whose executions may be run again (None: all). A call with the same key returns the same
    execution. Raises ExecutionUnknown, ExecutionRunning, and KeyTaken if another execution has the key.
    """
    return begin_again(execution, by, owner, key, note, is_restart=False)


def restart_execution(
    execution: UUID,
    by: str,
    owner: UUID | None = None,
    key: str | None = None,
    *,
    note: str = "",
    from_step: str | None = None,
    inputs: dict[str, Any] | None = None,
) -> tuple[UUID, bool]:
    """Run an execution again from where it failed or was cancelled. Return its new id, and whether it is new.

    Completed steps are kept with their output, unless they depend on a step that did not complete. The same applies to
    child executions. `from_step` is the key of a step that runs again with its dependents even if it completed.
    `inputs` replace those of the execution; kept steps keep the output that they have. Everything else is as in
    `rerun_execution`. Also raise ExecutionEnded if there is nothing to restart, and ImpossibleChange.
    """
    return begin_again(execution, by, owner, key, note, is_restart=True, from_step=from_step, inputs=inputs)


@retried_atomic
def begin_again(
    execution: UUID,
    by: str,
    owner: UUID | None,
    key: str | None,
    note: str,
    *,
    is_restart: bool,
    from_step: str | None = None,
    inputs: dict[str, Any] | None = None,
) -> tuple[UUID, bool]:
    reached = Execution.objects.filter(pk=execution, **({} if owner is None else {"owner": owner}))
    before = reached.select_for_update(no_key=True).first()
    if before is None:
        raise ExecutionUnknown
    if before.loop is not None:
        raise ExecutionEnded("This execution runs the items of a step. Run the execution of that step again instead.")
    is_by_failure = is_restart and from_step is None
    (guards.ensure_may_restart_execution if is_by_failure else guards.ensure_may_rerun_execution)(before)
    if key is not None and (known := find_begun_again(before, key, is_restart)):
        return known, False
    definition = drop_past_deadlines(read_whole_definition(before))
    if not definition["steps"]:
        raise ExecutionEnded(f"This {before.state} execution has no steps: there is nothing to run again.")
    if inputs is not None:
        definition["inputs"] = inputs
    refuse_impossible_restart(before, definition, from_step, before.inputs if inputs is None else inputs)
    steps = list_steps_to_restart([execution], from_step)[execution] if is_restart else {}
    if is_restart and not steps:
        raise ExecutionEnded(f"All steps of this {before.state} execution completed: run it again instead.")
    plan = ExecutionPlan(
        definition,
        before.owner_id,
        before.inputs if inputs is None else inputs,
        before.namespace,
        key=key,
        rerun_of=before.pk,
        restarts=steps,
    )
    if begun := begin_executions([plan], is_limited=owner is not None):
        action = "restart_execution" if is_restart else "rerun_execution"
        changes = describe_changes(before, from_step, inputs)
        record_action(action, by, note, ActionSubject(SubjectType.EXECUTION, before.pk, before.name), changes=changes)
        log.info("Execution begun again", execution=str(execution), new=str(begun[0]), actor=by, reason=note)
        return begun[0], True
    holder = Execution.objects.filter(owner=before.owner_id, key=key).first()
    if holder is None:
        raise TryAgain
    raise KeyTaken(f"The key {key!r} was used before, for another execution.", execution=str(holder.pk))


def read_whole_definition(before: Execution) -> dict[str, Any]:
    """Return the definition of an execution, with the steps that were added while it was open."""
    definition = {name: value for name, value in before.definition.items() if name != "sealed"}
    if len(definition) < len(before.definition):
        added = before.steps.filter(definition__isnull=False).order_by("position").values_list("definition", flat=True)
        definition["steps"] = [*definition["steps"], *added]
    return definition


def refuse_impossible_restart(
    before: Execution, definition: dict[str, Any], from_step: str | None, inputs: dict[str, Any]
) -> None:
    """Raise ImpossibleChange if the execution has no such step, or if it is too large with these inputs."""
    keys = [step["key"] for step in definition["steps"]]
    if from_step is not None and from_step not in keys:
        few = ", ".join(keys[:STEPS_NAMED]) + (" …" if len(keys) > STEPS_NAMED else "")
        raise ImpossibleChange(f"The execution has no step {from_step!r}. Its steps are {few}.")
    size = count_payload_bytes(definition, inputs)
    if len(definition["steps"]) > len(before.definition["steps"]):
        size = max(size, len(drafts.dump_sorted_json(definition["steps"])))
    if size > PAYLOAD_BYTES_LIMIT:
        raise ImpossibleChange(
            f"The steps, with their copies of the inputs, have {size} bytes, but may have at most"
            f" {PAYLOAD_BYTES_LIMIT}. Steps that were added later count too."
        )


def describe_changes(
    before: Execution, from_step: str | None, inputs: dict[str, Any] | None
) -> dict[str, dict[str, Any]] | None:
    """Return what differs from the earlier execution, for the event. None: nothing."""
    changes: dict[str, dict[str, Any]] = {}
    if from_step is not None:
        changes["from_step"] = {"old": None, "new": from_step}
    if inputs is not None and inputs != before.inputs:
        changes["inputs"] = {"old": show_value(before.inputs), "new": show_value(inputs)}
    return changes or None


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
        for part in ("steps", *HookOf)
        if part in definition
    }
    return {**definition, **parts}
