"""Builds the rows of executions and their steps, before they are stored."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from jobs.choices import HookOf
from jobs.services import drafts, step_data
from jobs.sql.rows.executions import StepToRestart
from jobs.tags import NO_WORKER
from liveness.models import DEFAULT_NAMESPACE

PAYLOAD_BYTES_LIMIT = 8 * 1024 * 1024
"""Bytes of JSON that a submission may store beside its own definition. Each step without a payload stores the inputs,
and the definition of a child is stored with its step and with the child."""


@dataclass(frozen=True)
class ExecutionPlan:
    """Data of an execution, a set of steps that depend on each other, before its rows are stored."""

    definition: dict[str, Any]
    owner: UUID | None
    inputs: dict[str, Any]
    namespace: str = DEFAULT_NAMESPACE
    key: str | None = None
    require_worker: bool = False
    trigger: UUID | None = None
    trigger_chain: tuple[UUID, ...] = ()
    rerun_of: UUID | None = None
    parent_step: UUID | None = None
    root: UUID | None = None
    restarts: Mapping[str, StepToRestart] = field(default_factory=dict)
    """The steps of `rerun_of` from which the steps of this execution continue, by key."""

    def keeps(self, key: str) -> bool:
        return key in self.restarts and self.restarts[key].is_kept


@dataclass
class ExecutionRows:
    """Rows to store for some plans."""

    executions: list[dict[str, Any]] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)
    """`reads` of a step is missing if it has no paths."""
    edges: list[dict[str, Any]] = field(default_factory=list)


def build_execution_rows(plans: list[ExecutionPlan]) -> ExecutionRows:
    """Return the rows to store for these plans."""
    rows = ExecutionRows()
    for place, plan in enumerate(plans):
        steps = plan.definition["steps"]
        limits = plan.definition.get("limits")
        rows.executions.append(
            {
                "place": place,
                "parent_step": plan.parent_step,
                "root": plan.root,
                "owner": plan.owner,
                "namespace": plan.namespace,
                "trigger": plan.trigger,
                "trigger_chain": plan.trigger_chain,
                "rerun_of": plan.rerun_of,
                "name": plan.definition["name"],
                "key": plan.key,
                "fingerprint": drafts.compute_fingerprint(plan.definition),
                "definition": plan.definition,
                "inputs": plan.inputs,
                "open_steps": sum(not plan.keeps(step["key"]) for step in steps),
                "timeout_seconds": plan.definition.get("timeout_seconds"),
                "outputs_from": step_data.build_outputs(plan.definition),
                "deadline_seconds": plan.definition.get("deadline_seconds"),
                "on_deadline": plan.definition.get("on_deadline"),
                "notify": plan.definition.get("notify"),
                "sealed": plan.definition.get("sealed", True),
                "limits": limits,
                "first_key": min(limits) if limits else None,
            }
        )
        add_step_rows(rows, place, plan, steps)
        first = len(steps)
        for hook in HookOf:
            hooks = plan.definition.get(hook, [])
            add_step_rows(rows, place, plan, hooks, first, hook)
            first += len(hooks)
    return rows


def add_step_rows(
    rows: ExecutionRows,
    place: int,
    plan: ExecutionPlan,
    steps: list[dict[str, Any]],
    first: int = 0,
    hook: HookOf | None = None,
) -> None:
    """Add the rows of steps or hooks of a plan. `first` is the position of the first one."""
    for position, step in enumerate(steps, first):
        needs = sorted(set(step.get("depends_on", [])))
        rows.edges += [{"place": place, "step": step["key"], "depends_on": key} for key in needs]
        rows.steps.append(
            {
                "place": place,
                "position": position,
                **build_step_job(step, plan),
                **step_data.build_path_columns(step),
                "step": step["key"],
                "is_hook": hook is not None,
                "hook": hook,
                "continue_on_failure": step.get("continue_on_failure", False),
                "waits_for": sum(not plan.keeps(key) for key in needs),
                "restart_of": before.job if (before := plan.restarts.get(step["key"])) else None,
                "is_kept": plan.keeps(step["key"]),
            }
        )


def count_payload_bytes(definition: dict[str, Any], inputs: object) -> int:
    """Return the bytes of the payloads and child definitions that an execution and its children would store."""
    own = len(drafts.dump_sorted_json(inputs))
    total = 0
    for step in drafts.steps_and_hooks(definition):
        is_own = "payload" in step or drafts.is_waiting(step)
        total += len(drafts.dump_sorted_json(drafts.own_payload(step, inputs))) if is_own else own
        if step["action"]["type"] == "execution":
            total += 2 * len(drafts.dump_sorted_json(step["action"])) + count_payload_bytes(
                step["action"], step.get("payload", inputs)
            )
    return total


def build_step_job(step: dict[str, Any], plan: ExecutionPlan) -> dict[str, Any]:
    """Return the job that stands for a step."""
    job = drafts.build_job_content({**step, "payload": drafts.own_payload(step, plan.inputs)})
    if drafts.is_loop(step):  # the control plane starts it, and its items have its tags
        job |= {"loop": build_loop(step, job["required_tags"]), "required_tags": [NO_WORKER]}
    return {**job, "needs": drafts.required_tag_sets(step) if plan.require_worker else None}


def build_loop(step: dict[str, Any], required_tags: list[str]) -> dict[str, Any]:
    """Return the column `loop` of a step that runs for each item of a list."""
    own = {name: step[name] for name in ("for_each", "max_parallel") if step.get(name) is not None}
    return {**own, "fail_fast": step.get("fail_fast", True), "required_tags": required_tags}
