"""Executions begin: a client's, a trigger's, and the children of steps."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson
import structlog
from django.utils import timezone

from controlplane.core.transactions import retried_atomic
from jobs.conf import conf
from jobs.errors import ExecutionUnknown, KeyTaken, TryAgain, refuse_too_many, refuse_without_worker
from jobs.models import Execution
from jobs.services import drafts, guards
from jobs.services.hints import announce_work
from jobs.sql import sql
from liveness.conf import conf as liveness_conf
from liveness.models import DEFAULT_NAMESPACE, ApiToken
from liveness.services.operator_events import Subject, record_operator_event
from liveness.states import Subject as SubjectType

log = structlog.get_logger()

PAYLOAD_BYTES_LIMIT = 8 * 1024 * 1024
"""Bytes, as JSON, of what a submission is stored as beside itself: inputs are stored with each step that has none, and
the definition of a child with its step and with the child."""


@dataclass(frozen=True)
class ExecutionPlan:
    """An execution that is to begin."""

    definition: dict[str, Any]
    owner: UUID | None
    inputs: dict[str, Any]
    namespace: str = DEFAULT_NAMESPACE
    key: str | None = None
    require_worker: bool = False
    trigger: UUID | None = None
    rerun_of: UUID | None = None
    parent_step: UUID | None = None
    root: UUID | None = None


@dataclass
class ExecutionRows:
    """What is stored of some plans."""

    executions: list[dict[str, Any]] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)
    edges: list[dict[str, Any]] = field(default_factory=list)


@retried_atomic
def submit_execution(owner: ApiToken, definition: dict[str, Any], *, namespace: str | None = None) -> tuple[UUID, bool]:
    """An execution with all of its steps: its id, and whether it is new.

    `definition` is what the serializer let through. It is of this namespace, or of the owner's. The same key again
    finds the same execution. Raises KeyTaken when its content is another, and what is in the way when it requires a
    worker and for one of its steps, or of its children's, none is eligible.
    """
    content = {name: value for name, value in definition.items() if name not in drafts.NOT_FINGERPRINTED}
    plan = ExecutionPlan(
        content,
        owner.pk,
        content.get("inputs", {}),
        namespace or owner.namespace,
        key=definition.get("key"),
        require_worker=definition.get("require_worker", False),
    )
    begun = begin_executions([plan], conf().waiting_limit)
    if begun:
        return begun[0], True
    known = Execution.objects.filter(owner=owner, key=plan.key).first()
    if known is None:
        raise TryAgain
    if known.namespace != plan.namespace:
        why = f"The key {plan.key!r} was used before, in the namespace {known.namespace}."
        raise KeyTaken(why, execution=str(known.pk))
    if bytes(known.fingerprint).hex() != drafts.compute_fingerprint(content):
        raise KeyTaken(f"The key {plan.key!r} was used before, with other content.", execution=str(known.pk))
    return known.pk, False


@retried_atomic
def rerun_execution(
    execution: UUID, by: str, owner: UUID | None = None, key: str | None = None, *, note: str = ""
) -> tuple[UUID, bool]:
    """An execution that has ended once more from its beginning, as a new one: its id, and whether it is new.

    With a key the same call again finds the same execution. Raises ExecutionUnknown, also when it is not the owner's
    (None: everybody's), ExecutionRunning, and KeyTaken when another execution has the key.
    """
    reached = Execution.objects.filter(pk=execution, **({} if owner is None else {"owner": owner}))
    before = reached.select_for_update(no_key=True).first()
    if before is None:
        raise ExecutionUnknown
    guards.ensure_may_rerun_execution(before)
    # Those of triggers have no owner in whose name a key would be unique.
    again = Execution.objects.filter(owner=before.owner_id, key=key, rerun_of=before) if key is not None else None
    if again is not None and (known := again.first()):
        return known.pk, False
    plan = ExecutionPlan(
        drop_past_deadlines(before.definition),
        before.owner_id,
        before.inputs,
        before.namespace,
        key=key,
        rerun_of=before.pk,
    )
    if begun := begin_executions([plan], conf().waiting_limit if owner else None):
        record_operator_event("rerun_execution", by, note, Subject(SubjectType.EXECUTION, before.pk, before.name))
        log.info("Execution begun again", execution=str(execution), new=str(begun[0]), actor=by, reason=note)
        return begun[0], True
    holder = Execution.objects.filter(owner=before.owner_id, key=key).first()
    if holder is None:
        raise TryAgain
    raise KeyTaken(f"The key {key!r} was used before, for another execution.", execution=str(holder.pk))


def drop_past_deadlines(definition: dict[str, Any]) -> dict[str, Any]:
    """What was submitted, without moments that have passed: steps are not to expire by one of those."""

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


def begin_executions(plans: list[ExecutionPlan], waiting_limit: int | None = None) -> list[UUID]:
    """Store executions, with the children that begin with them; the ids of those of `plans` that were not there. In the
    caller's transaction. Raises TooManyWaiting when so many jobs of the owner wait already; all plans are one's then.
    """
    rows = build_execution_rows(plans)
    stored = sql.submit_executions.fetch_rows(
        executions=drafts.dump_sorted_json(rows.executions),
        steps=drafts.dump_sorted_json(rows.steps),
        edges=drafts.dump_sorted_json(rows.edges),
        owner=plans[0].owner,
        waiting_limit=waiting_limit,
        staleness_multiplier=liveness_conf().staleness_multiplier,
    )
    refuse_too_many(stored, 1, waiting_limit)
    refuse_without_worker(stored)
    begin_children(row.child_of for row in stored if row.child_of)
    announce_work()
    return list(dict.fromkeys(row.execution for row in stored))


def begin_children(steps: Iterable[UUID]) -> None:
    """Begin the executions that waiting steps, or jobs, are. In the caller's transaction, which holds the roots of
    steps."""
    if plans := plan_children(list(steps)):
        begin_executions(plans)


def plan_children(steps: list[UUID]) -> list[ExecutionPlan]:
    begun = sql.list_children_to_begin.fetch_rows(steps=steps) if steps else []
    return [
        ExecutionPlan(
            {name: value for name, value in orjson.loads(row.action).items() if name != "type"},
            row.owner,
            orjson.loads(row.payload) if row.payload else {},
            row.namespace,
            parent_step=row.step,
            root=row.root,
        )
        for row in begun
    ]


def build_execution_rows(plans: list[ExecutionPlan]) -> ExecutionRows:
    """The rows to store."""
    rows = ExecutionRows()
    for place, plan in enumerate(plans):
        steps, hooks = plan.definition["steps"], plan.definition.get("on_error", [])
        rows.executions.append(
            {
                "place": place,
                "parent_step": plan.parent_step,
                "root": plan.root,
                "owner": plan.owner,
                "namespace": plan.namespace,
                "trigger": plan.trigger,
                "rerun_of": plan.rerun_of,
                "name": plan.definition["name"],
                "key": plan.key,
                "fingerprint": drafts.compute_fingerprint(plan.definition),
                "definition": plan.definition,
                "inputs": plan.inputs,
                "open_steps": len(steps),
                "timeout_seconds": plan.definition.get("timeout_seconds"),
            }
        )
        for position, step in enumerate([*steps, *hooks]):
            needs = sorted(set(step.get("depends_on", [])))
            rows.edges += [{"place": place, "step": step["key"], "depends_on": key} for key in needs]
            rows.steps.append(
                {
                    "place": place,
                    "position": position,
                    **build_step_job(step, plan),
                    "step": step["key"],
                    "is_hook": position >= len(steps),
                    "continue_on_failure": step.get("continue_on_failure", False),
                    "waits_for": len(needs),
                }
            )
    return rows


def count_payload_bytes(definition: dict[str, Any], inputs: object) -> int:
    """Bytes of the payloads that an execution and its children would store, and of the children's definitions."""
    own = len(drafts.dump_sorted_json(inputs))
    total = 0
    for step in drafts.steps_and_hooks(definition):
        total += len(drafts.dump_sorted_json(step["payload"])) if "payload" in step else own
        if step["action"]["type"] == "execution":
            total += 2 * len(drafts.dump_sorted_json(step["action"])) + count_payload_bytes(
                step["action"], step.get("payload", inputs)
            )
    return total


def build_step_job(step: dict[str, Any], plan: ExecutionPlan) -> dict[str, Any]:
    """A step as the job that it is. Without a payload it gets the inputs of the execution."""
    job = drafts.build_job_content({"payload": plan.inputs, **step})
    return {**job, "needs": drafts.required_tag_sets(step) if plan.require_worker else None}
