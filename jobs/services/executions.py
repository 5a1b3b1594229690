"""Begins executions (those of clients and triggers, reruns, children of steps), and moves them on when steps end."""

from collections.abc import Collection, Iterable, Set
from typing import Any
from uuid import UUID

import structlog
from django.db import DatabaseError

from controlplane.agent.limits import SIZE_LIMIT
from controlplane.core.database import transaction
from controlplane.core.json_bodies import read_json, write_json
from controlplane.core.transactions import retried_atomic
from jobs.conf import conf
from jobs.errors import KeyTaken, TryAgain
from jobs.models import Execution
from jobs.services import drafts, holds, limits, quotas, step_data, stored_bytes
from jobs.services.execution_rows import ExecutionPlan, build_execution_rows
from jobs.services.hints import announce_new_work, announce_work
from jobs.services.refusals import (
    refuse_over_quota,
    refuse_too_many,
    refuse_too_many_tag_sets,
    refuse_without_runner,
    refuse_without_worker,
)
from jobs.sql import sql
from jobs.sql.rows.executions import StepToRestart
from jobs.states import JobState
from liveness.conf import conf as liveness_conf
from liveness.models import ApiToken

log = structlog.get_logger()

BATCH = 1000
"""Number of steps that one transaction cancels."""


@retried_atomic
def submit_execution(owner: ApiToken, definition: dict[str, Any], *, namespace: str | None = None) -> tuple[UUID, bool]:
    """Submit an execution with all its steps. Return its id, and whether it is new.

    `definition` is validated by the serializer; `namespace` is that of the owner by default. A call with the same key
    returns the same execution. Raises KeyTaken if the key belongs to other content, and NoRunner if no worker has the
    runner of a step, also of a child. Raises the errors of `begin_executions` too. If `require_worker` is set and a
    step has no eligible worker, raises the problem that explains why. Raises OnHold if a hold refuses a step.
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
    begun = begin_executions([plan], runners, is_limited=True)
    if begun:
        holds.refuse_jobs_on_hold(drafts.jobs_within({"action": {"type": "execution", **content}}), plan.namespace)
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
    plans: list[ExecutionPlan], runners: Set[tuple[str, ...]] = frozenset(), *, is_limited: bool = False
) -> list[UUID]:
    """Store executions, and the children that begin with them, in the caller's transaction.

    Returns the ids of the new executions; those whose key is known are left out. With `is_limited` the limits of the
    owner apply (all plans have one owner): raises TooManyWaiting, TooManyTagSets and QuotaExceeded. Raises NoRunner if
    no worker has one of the `runners`.
    """
    waiting_limit = conf().waiting_limit if is_limited else None
    tag_sets_limit = conf().waiting_tag_sets_limit if is_limited else None
    if tag_sets_limit is not None:
        # The steps of children count too, because they wait sooner or later.
        wanted = [{"action": {**plan.definition, "type": "execution"}} for plan in plans]
        refuse_too_many_tag_sets([], tag_sets_limit, len(set().union(*map(drafts.required_tag_sets, wanted))))
    stored_limit = conf().stored_bytes_limit if is_limited else None
    rows = build_execution_rows(plans)
    stored = stored_bytes.counting(sql.submit_executions).fetch_rows(
        executions=drafts.dump_sorted_json(rows.executions),
        steps=drafts.dump_sorted_json(rows.steps),
        edges=drafts.dump_sorted_json(rows.edges),
        runners=drafts.dump_sorted_json([(plans[0].namespace, tags) for tags in runners]),
        owner=plans[0].owner,
        unmatched_after=conf().unmatched_after,
        waiting_limit=waiting_limit,
        tag_sets_limit=tag_sets_limit,
        stored_limit=stored_limit,
        staleness_multiplier=liveness_conf().staleness_multiplier,
    )
    refuse_too_many(stored, 1, waiting_limit)
    refuse_too_many_tag_sets(stored, tag_sets_limit)
    refuse_over_quota(stored, stored_limit)
    refuse_without_worker(stored)
    refuse_without_runner(stored, [runners])
    begin_without_worker(row.begins for row in stored if row.begins)
    announce_new_work()
    if any(row["limits"] for row in rows.executions):
        limits.settle_soon()
    with_paths = {
        step["place"] for step in rows.steps if "reads" in step and not (step["waits_for"] or step["is_hook"])
    }
    if to_resolve := {row.execution for row in stored if row.place in with_paths}:
        advance_executions(to_resolve, begun=to_resolve)
    begun = list(dict.fromkeys(row.execution for row in stored))
    if is_limited and any(row.has_quota for row in stored):
        quotas.spend_quotas(plans[0].namespace, len(begun))
    return begun


def begin_without_worker(steps: Iterable[UUID]) -> None:
    """Begin these waiting steps or jobs, which need no worker: start their child executions or their waits.

    In the caller's transaction, which holds the locks of the roots of steps.
    """
    if not (ids := list(steps)):
        return
    sql.begin_waits.fetch_rows(steps=ids)
    if plans := plan_children(ids):
        begin_executions(plans)


def begin_loops(steps: Iterable[UUID]) -> None:
    """Begin these waiting steps, which run for each item of a list: store their children, and begin these.

    In the caller's transaction, which holds the locks of the roots. The caller need not propagate any end.
    """
    if not (ids := list(steps)):
        return
    begun = stored_bytes.counting(sql.begin_loops).fetch_rows(steps=ids)
    begin_without_worker(row.begins for row in begun if row.begins)
    if empty := [row for row in begun if row.child is None]:
        sql.complete_empty_loops.fetch_rows(steps=[row.step for row in empty])
    with_paths = {row.child for row in begun if row.child and row.has_paths}
    advance_executions({row.execution for row in empty} | with_paths, begun=with_paths)


def start_parked_items(executions: Collection[UUID]) -> None:
    """Start the next items of loops, as many as may run at once. In the caller's transaction, as for `begin_loops`."""
    if executions:
        started = sql.start_parked_items.fetch_rows(executions=list(executions))
        begin_without_worker(row.id for row in started if row.needs_no_worker)


def stop_items(loop: UUID, root: UUID, failed: str | None) -> list[UUID]:
    """Cancel the other items of a loop because an item has failed. Return the executions whose steps have ended.

    Items that wait or run are cancelled after the commit. If the process crashes before that, the sweep cancels them.
    """
    error = {"code": "ITEMS_FAILED", "message": f"Item {failed} did not complete, so the others were cancelled"}
    stopped = sql.cancel_executions.fetch_rows(executions=[loop], error=write_json(error).decode())
    transaction.on_commit(lambda: try_to_halt(root))
    return [row.id for row in stopped]


def plan_children(steps: list[UUID]) -> list[ExecutionPlan]:
    begun = sql.list_children_to_begin.fetch_rows(steps=steps)
    restarts = list_steps_to_restart([row.restarts for row in begun if row.restarts])
    return [
        ExecutionPlan(
            {name: value for name, value in read_json(row.action).items() if name != "type"},
            row.owner,
            read_json(row.payload) if row.payload else {},
            row.namespace,
            rerun_of=row.repeats,
            parent_step=row.step,
            root=row.root,
            restarts=restarts[row.restarts] if row.restarts else {},
        )
        for row in begun
    ]


def list_steps_to_restart(executions: list[UUID], from_step: str | None = None) -> dict[UUID, dict[str, StepToRestart]]:
    """Return the steps from which a restart of each execution continues, by key.

    `from_step` is the key of a step that runs again, with its dependents, although it completed. Empty for an execution
    whose steps all completed: it begins from the start again.
    """
    steps: dict[UUID, dict[str, StepToRestart]] = {execution: {} for execution in executions}
    for row in sql.list_steps_to_restart.fetch_rows(executions=executions, from_step=from_step) if executions else []:
        steps[row.execution][row.step] = row
    return {id: {} if all(row.is_kept for row in rows.values()) else rows for id, rows in steps.items()}


def advance_executions(execution_ids: Iterable[UUID], *, begun: Iterable[UUID] = ()) -> None:
    """Move these executions on, and the trees they belong to, until nothing changes any more.

    `begun` are those that may have steps which wait only for their paths to be read.
    """
    pending: list[UUID] = sorted(execution_ids)
    if not pending:
        return
    announce_work()  # dependents and hooks may begin
    roots = [row.id for row in sql.lock_roots.fetch_rows(executions=pending)]
    to_resolve = set(begun)
    has_ended_child = True  # a child may have ended whose parent step does not know it yet
    while pending or has_ended_child or to_resolve:
        resolved = step_data.resolve_steps(to_resolve) if to_resolve else []
        to_begin = [row for row in resolved if row.needs_no_worker and row.state == JobState.PENDING]
        begin_without_worker([row.id for row in to_begin if not row.is_loop])
        begin_loops([row.id for row in to_begin if row.is_loop])
        pending = sorted({*pending, *(row.execution for row in resolved if row.state != JobState.PENDING)})
        rows = sql.propagate_ends.fetch_rows(executions=pending, roots=roots, output_limit=SIZE_LIMIT)
        begin_without_worker([row.id for row in rows if row.what == "begins"])
        to_resolve = {row.execution for row in rows if row.what == "resolves" and row.execution}
        with_outputs = [row.id for row in rows if row.what == "reads outputs"]
        step_data.read_outputs(with_outputs)
        pending = sorted({row.execution for row in rows if row.what == "returns" and row.execution} | {*with_outputs})
        for row in rows:
            if row.what == "fails fast" and row.execution:
                pending = sorted({*pending, *stop_items(row.execution, row.id, row.state)})
        start_parked_items([row.id for row in rows if row.what == "frees"])
        has_ended_child = any(row.what == "ended child" for row in rows)
        for row in rows:
            if row.what in ("ended", "ended child"):
                log.info("Execution ended", execution=str(row.execution), state=row.state)
        if any(row.is_limited for row in rows):
            limits.settle_soon()


def halt_tree(root: UUID) -> None:
    """Cancel the jobs of all CANCELLING executions of one tree."""
    while halt_batch_of_tree(root) == BATCH:
        pass


@retried_atomic
def halt_batch_of_tree(root: UUID) -> int:
    rows = sql.halt_steps.after(sql.lock_roots).fetch_rows(executions=[root], root=root, batch=BATCH)
    advance_executions({row.execution for row in rows})
    if rows:
        limits.settle_soon()
    return len(rows)


def try_to_halt(root: UUID) -> None:
    """Cancel the jobs of a tree as in `halt_tree`. An error of the database is logged, and the sweep does it later."""
    try:
        halt_tree(root)
    except DatabaseError as error:
        log.warning("Items are cancelled later", root=str(root), why=str(error).strip().split("\n")[0])
