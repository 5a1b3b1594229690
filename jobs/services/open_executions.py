"""Open executions: add steps while others run, then seal the execution, so that it can end.

Both lock the root of the execution, as every end of a step does. So a step is added before the seal or not at all.
A new step also sees reliably which of its dependencies have ended.
"""

from typing import Any, NamedTuple
from uuid import UUID

import structlog
from django.db.models import Count, Max, Q

from controlplane.core.transactions import retried_atomic
from jobs import graph
from jobs.conf import conf
from jobs.errors import KeyTaken
from jobs.execution_errors import ExecutionUnknown, ImpossibleSteps
from jobs.models import Execution
from jobs.services import drafts, guards, holds, quotas, step_data, stored_bytes
from jobs.services.execution_rows import (
    PAYLOAD_BYTES_LIMIT,
    ExecutionPlan,
    ExecutionRows,
    add_step_rows,
    count_payload_bytes,
)
from jobs.services.executions import advance_executions, begin_without_worker
from jobs.services.hints import announce_new_work
from jobs.services.refusals import refuse_over_quota, refuse_too_many, refuse_too_many_tag_sets, refuse_without_runner
from jobs.sql import sql
from liveness.conf import conf as liveness_conf
from liveness.services.action_events import ActionSubject, record_action
from liveness.states import Subject as SubjectType

log = structlog.get_logger()


class KnownStep(NamedTuple):
    """Step or hook that an execution already has."""

    step: str
    fingerprint: bytes
    is_hook: bool


@retried_atomic
def add_steps(execution: UUID, steps: list[dict[str, Any]], owner: UUID | None = None) -> bool:
    """Add steps to an open execution, all or none. Return False if it has all of them already.

    `steps` are validated by the serializer. `owner` is the client whose executions may be changed (None: all); its
    limits apply. A step that the execution already has, with the same content, is ignored. Raises ExecutionUnknown,
    ExecutionSealed, ExecutionEnded, KeyTaken, ImpossibleSteps, and the refusals of `begin_executions`.
    """
    row = lock_execution(execution, owner)
    plan = ExecutionPlan({}, row.owner_id, row.inputs, row.namespace)
    rows = ExecutionRows()
    add_step_rows(rows, 0, plan, steps)
    known = read_known_steps(row, steps)
    for draft in rows.steps:
        same = known.get(draft["step"])
        if same is not None and (same.is_hook or same.fingerprint.hex() != draft["fingerprint"]):
            raise KeyTaken(f"The execution already has a step {same.step!r}, with other content.", step=same.step)
    new = [step for step in steps if step["key"] not in known]
    if not new:
        return False
    guards.ensure_may_add_steps(row)
    own = row.steps.aggregate(steps=Count("pk", filter=Q(is_hook=False)), last=Max("position"))
    refuse_impossible(row, new, known, own["steps"])
    store_steps(row, plan, new, (own["last"] or 0) + 1, is_limited=owner is not None)
    return True


@retried_atomic
def seal_execution(execution: UUID, by: str, owner: UUID | None = None, *, note: str = "") -> None:
    """Seal an open execution: no step can be added, and it ends when all of its steps have ended.

    A second call changes nothing. Raises ExecutionUnknown and ExecutionEnded.
    """
    row = lock_execution(execution, owner)
    if row.sealed:
        return
    guards.ensure_may_seal_execution(row)
    sql.seal_execution.fetch_rows(execution=execution)
    record_action("seal_execution", by, note, ActionSubject(SubjectType.EXECUTION, execution, row.name))
    advance_executions([execution])
    log.info("Execution sealed", execution=str(execution), actor=by)


def lock_execution(execution: UUID, owner: UUID | None) -> Execution:
    """Lock the root of an execution, and return the execution as it is then. Raises ExecutionUnknown."""
    sql.lock_roots.fetch_rows(executions=[execution])
    reached = Execution.objects.filter(pk=execution, **({} if owner is None else {"owner": owner}))
    row = reached.defer("definition").first()
    if row is None:
        raise ExecutionUnknown
    return row


def read_known_steps(row: Execution, steps: list[dict[str, Any]]) -> dict[str, KnownStep]:
    """Return the steps of an execution that have the key of one of these, or on which one of these depends."""
    keys = {step["key"] for step in steps} | {key for step in steps for key in step.get("depends_on", [])}
    found = row.steps.filter(step__in=keys).values_list("step", "fingerprint", "is_hook")
    return {str(key): KnownStep(str(key), bytes(fingerprint), is_hook) for key, fingerprint, is_hook in found}


def refuse_impossible(row: Execution, new: list[dict[str, Any]], known: dict[str, KnownStep], count: int) -> None:
    """Raise ImpossibleSteps if these new steps cannot be added to the execution, which has `count` steps."""
    needs = {step["key"]: step.get("depends_on", []) for step in new}
    before: dict[str, list[str]] = {key: [] for key, one in known.items() if not one.is_hook and key not in needs}
    problems = graph.dependency_problems({**before, **needs})
    if count + len(new) > graph.STEPS_LIMIT:
        total = count + len(new)
        problems.append(f"There would be {total} steps, but at most {graph.STEPS_LIMIT} are allowed.")
    if not problems:
        problems = find_path_problems(row.pk, new) + find_held_keys(row.pk, new)
    size = count_payload_bytes({"steps": new}, row.inputs)
    if size > PAYLOAD_BYTES_LIMIT:
        problems.append(f"With the inputs they have {size} bytes, but may have at most {PAYLOAD_BYTES_LIMIT}.")
    if problems:
        raise ImpossibleSteps(problems[0], errors={"steps": problems})


def find_held_keys(execution: UUID, new: list[dict[str, Any]]) -> list[str]:
    """Return an error message for each key of a new step whose slots an execution above it holds until its end."""
    named = {key for step in new for job in drafts.jobs_within(step) for key in job.get("limits") or ()}
    if not named:
        return []
    held = {row.key for row in sql.list_held_keys.fetch_rows(execution=execution)}
    return [
        f"The execution holds the slots of {key!r} until its end, so no step of it may name this key."
        for key in sorted(held & named)
    ]


def find_path_problems(execution: UUID, new: list[dict[str, Any]]) -> list[str]:
    """Return an error message for each path that a new step must not use."""
    paths = [path for step in new for path in step_data.paths_of(step)]
    if not paths:
        return []
    uses = step_data.read_paths(paths).values()
    named = {key for use in uses if not isinstance(use, str) for key in use.steps}
    wanted = named | {key for step in new for key in step.get("depends_on", [])}
    before = [
        {"key": row.step, "depends_on": row.needs, "action": {"type": row.type}}
        for row in sql.list_steps_before.fetch_rows(execution=execution, steps=sorted(wanted))
    ]
    return step_data.find_path_problems({"steps": [*before, *new]})


def store_steps(
    row: Execution, plan: ExecutionPlan, new: list[dict[str, Any]], first: int, *, is_limited: bool
) -> None:
    """Store new steps from the position `first` on, and begin those that may begin."""
    holds.refuse_jobs_on_hold([job for step in new for job in drafts.jobs_within(step)], row.namespace)
    runners = set().union(*map(drafts.required_runners, new))
    rows = ExecutionRows()
    add_step_rows(rows, 0, plan, new, first)
    waiting_limit = conf().waiting_limit if is_limited else None
    tag_sets_limit = conf().waiting_tag_sets_limit if is_limited else None
    stored_limit = conf().stored_bytes_limit if is_limited else None
    added = stored_bytes.counting(sql.add_steps).fetch_rows(
        execution=row.pk,
        owner=row.owner_id,
        namespace=row.namespace,
        steps=drafts.dump_sorted_json(
            [{**draft, "definition": step} for draft, step in zip(rows.steps, new, strict=True)]
        ),
        edges=drafts.dump_sorted_json(rows.edges),
        runners=drafts.dump_sorted_json([(row.namespace, tags) for tags in runners]),
        unmatched_after=conf().unmatched_after,
        waiting_limit=waiting_limit,
        tag_sets_limit=tag_sets_limit,
        stored_limit=stored_limit,
        staleness_multiplier=liveness_conf().staleness_multiplier,
    )
    refuse_too_many(added[:1], len(new), waiting_limit)
    refuse_too_many_tag_sets(added[:1], tag_sets_limit)
    refuse_over_quota(added[:1], stored_limit)
    refuse_without_runner(added, [runners])
    if barred := [{"id": step.id, "cause": step.cause} for step in added if step.is_barred]:
        sql.skip_added_steps.fetch_rows(steps=drafts.dump_sorted_json(barred))
    begin_without_worker(step.id for step in added if step.begins)
    announce_new_work()
    if barred or any(step.has_paths for step in added):
        advance_executions([row.pk], begun=[row.pk])
    if is_limited and any(step.has_quota for step in added):
        quotas.spend_quotas(row.namespace, 1)
