"""Executions begin: a client's, a trigger's, and the children of steps."""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import orjson

from controlplane.core.transactions import retried_atomic
from jobs.conf import conf
from jobs.errors import KeyTaken, TryAgain
from jobs.models import Execution
from jobs.services import drafts
from jobs.services.hints import announce_work
from jobs.services.refusals import refuse_too_many, refuse_without_runner, refuse_without_worker
from jobs.sql import sql
from jobs.sql.rows.executions import StepToRestart
from liveness.conf import conf as liveness_conf
from liveness.models import DEFAULT_NAMESPACE, ApiToken

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
    restarts: Mapping[str, StepToRestart] = field(default_factory=dict)
    """From which steps of `rerun_of` its own go on, by their keys."""

    def keeps(self, key: str) -> bool:
        return key in self.restarts and self.restarts[key].is_kept


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
    finds the same execution. Raises KeyTaken when its content is another, NoRunner when no worker of the fleet takes
    the action of one of its steps, or of its children's, and what is in the way when it requires a worker and for one
    of them none is eligible.
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
    runners = drafts.required_runners({"action": {"type": "execution", **content}})
    begun = begin_executions([plan], conf().waiting_limit, runners)
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


def begin_executions(
    plans: list[ExecutionPlan], waiting_limit: int | None = None, runners: Set[tuple[str, ...]] = frozenset()
) -> list[UUID]:
    """Store executions, with the children that begin with them; the ids of those of `plans` that were not there. In the
    caller's transaction. Raises TooManyWaiting when so many jobs of the owner wait already, and NoRunner when no worker
    of the fleet has one of the `runners`; all plans are one's then.
    """
    rows = build_execution_rows(plans)
    stored = sql.submit_executions.fetch_rows(
        executions=drafts.dump_sorted_json(rows.executions),
        steps=drafts.dump_sorted_json(rows.steps),
        edges=drafts.dump_sorted_json(rows.edges),
        runners=drafts.dump_sorted_json(list(runners)),
        owner=plans[0].owner,
        namespace=plans[0].namespace,
        unmatched_after=conf().unmatched_after,
        waiting_limit=waiting_limit,
        staleness_multiplier=liveness_conf().staleness_multiplier,
    )
    refuse_too_many(stored, 1, waiting_limit)
    refuse_without_worker(stored)
    refuse_without_runner(stored, [runners])
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
    restarts = list_steps_to_restart([row.restarts for row in begun if row.restarts])
    return [
        ExecutionPlan(
            {name: value for name, value in orjson.loads(row.action).items() if name != "type"},
            row.owner,
            orjson.loads(row.payload) if row.payload else {},
            row.namespace,
            rerun_of=row.repeats,
            parent_step=row.step,
            root=row.root,
            restarts=restarts[row.restarts] if row.restarts else {},
        )
        for row in begun
    ]


def list_steps_to_restart(executions: list[UUID]) -> dict[UUID, dict[str, StepToRestart]]:
    """Of each of these, the steps from which those of a restart go on, by key. None where all have completed: such a
    one begins anew."""
    steps: dict[UUID, dict[str, StepToRestart]] = {execution: {} for execution in executions}
    for row in sql.list_steps_to_restart.fetch_rows(executions=executions) if executions else []:
        steps[row.execution][row.step] = row
    return {id: {} if all(row.is_kept for row in rows.values()) else rows for id, rows in steps.items()}


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
                "open_steps": sum(not plan.keeps(step["key"]) for step in steps),
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
                    "waits_for": sum(not plan.keeps(key) for key in needs),
                    "restart_of": before.job if (before := plan.restarts.get(step["key"])) else None,
                    "is_kept": plan.keeps(step["key"]),
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
