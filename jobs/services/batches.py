"""Batches: an operator's action on many objects. A request stores the batch, any process works on its items.

The service for one object acts on each item. The result is recorded in the same transaction, or for steps and
executions in the next transaction. If a process ends before it records a result, another process takes the item after
the lease. If the first process had already acted, the second process finds the event of the action.
"""

import time
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import structlog
from django.db import DatabaseError

from controlplane.core.database import transaction
from controlplane.core.json_bodies import read_json, write_json
from controlplane.core.problems import Problem
from controlplane.core.transactions import (
    is_transient_error,
    isolate_row,
    record_left_out,
    retried_atomic,
    retry_from_start,
)
from jobs.errors import BatchEnded, KeyTaken, TryAgain
from jobs.hooks import item_done
from jobs.models import Batch, BatchItem
from jobs.services.operator_actions import OPERATIONS, SUBJECTS, perform_operation
from jobs.sql import sql
from jobs.sql.rows.batches import LeasedItem
from jobs.states import BatchState, ItemOutcome
from liveness.models import ServerEvent
from liveness.services.action_events import ActionSubject, record_action
from liveness.states import Subject as SubjectType

log = structlog.get_logger()

MOST_ITEMS = 100_000
LEASE = 60
"""Seconds after which another process takes items that were not finished."""
ITEMS_AT_ONCE = 20
BUDGET = 1.5
"""Seconds after which a run takes no more items. The next tick takes the rest."""


@dataclass(frozen=True)
class BatchPlan:
    """Plan of a batch: its operation, a description of its objects, and the person or token that requests it."""

    operation: str
    by: str
    note: str
    parameters: dict[str, Any]
    chosen: str
    query: str = ""
    label: str = ""
    namespaces: Collection[str] | None = None
    """Namespaces that the action may reach (None: all)."""
    user_key: str | None = None
    """Key of the user who requests the batch (None: a token does)."""
    key: str | None = None
    """Idempotency key: a call with the same key finds the same batch."""
    left_out: list[tuple[str, int]] = field(default_factory=list)

    @property
    def reached(self) -> list[str] | None:
        return None if self.namespaces is None else sorted(self.namespaces)

    @property
    def title(self) -> str:
        return self.label or self.operation.partition("_")[0].capitalize()


def begin_batch(
    operation: str, by: str, note: str, parameters: dict[str, Any], items: list[tuple[UUID, str]], **described: Any
) -> UUID:
    """Begin a batch for these items, each with the state in which it was `seen` (empty: any state). Return its id.

    If the parameters have the `key` of an existing batch, return that batch.
    """
    plan = BatchPlan(operation, by, note, parameters, **{"key": parameters.get("key") or None, **described})
    return store_batch(plan, items) or Batch.objects.values_list("pk", flat=True).get(key=plan.key)


def submit_batch(plan: BatchPlan, ids: list[UUID], *, are_named: bool) -> tuple[UUID, bool]:
    """Begin a batch for these ids. Return the id of the batch, and whether it is new.

    Raises KeyTaken if the key belongs to another batch. With `are_named` the caller named the ids, so a batch with
    other ids is another batch.
    """
    if begun := store_batch(plan, [(id, "") for id in ids]):
        return begun, True
    known = find_batch(plan, ids if are_named else None)
    if known is None:
        raise TryAgain
    return known, False


def find_batch(plan: BatchPlan, ids: list[UUID] | None) -> UUID | None:
    """Return the batch of an earlier call with the same key, or None. Raise KeyTaken if that call was different."""
    known = Batch.objects.filter(key=plan.key).first() if plan.key is not None else None
    if known is None:
        return None
    wanted = (plan.operation, plan.note, plan.parameters, plan.query, plan.chosen, plan.reached)
    is_same = wanted == (
        known.operation, known.note, known.parameters, known.query, known.chosen, known.namespaces
    )  # fmt: skip
    if is_same and ids is not None:
        is_same = set(ids) == set(BatchItem.objects.filter(batch=known).values_list("subject_id", flat=True))
    if not is_same:
        raise KeyTaken("This key was used before, for another batch.", batch=str(known.pk))
    return known.pk


def list_item_namespaces(plan: BatchPlan, ids: list[UUID]) -> list[str] | None:
    """Return the namespaces of the items, or None if no item exists any more.

    They decide who may see and stop the batch.
    """
    if plan.reached is not None and len(plan.reached) == 1:
        return plan.reached
    rows = SUBJECTS[OPERATIONS[plan.operation].subject].model._default_manager.filter(pk__in=ids)
    return list(rows.order_by("namespace").values_list("namespace", flat=True).distinct()) or None


def store_batch(plan: BatchPlan, items: list[tuple[UUID, str]]) -> UUID | None:
    ids = [id for id, _ in items]
    begun = sql.begin_batch.fetch_row(
        key=plan.key, operation=plan.operation, subject_type=OPERATIONS[plan.operation].subject, label=plan.title,
        chosen=plan.chosen, query=plan.query, actor=plan.by, note=plan.note, user_key=plan.user_key,
        namespaces=plan.reached, item_namespaces=list_item_namespaces(plan, ids),
        parameters=write_json(plan.parameters).decode(), left_out=write_json(plan.left_out).decode(), ids=ids,
        seen=[seen for _, seen in items],
    )  # fmt: skip
    if begun is None:
        return None
    log.info(
        "Batch begun", batch=str(begun.id), operation=plan.operation, items=len(items), actor=plan.by, reason=plan.note
    )
    return begun.id


def run_batches() -> int:
    """Work on items until all are done or the budget is spent. Return how many items were taken."""
    began, done = time.monotonic(), 0
    while time.monotonic() - began < BUDGET and (number := run_items(None, ITEMS_AT_ONCE)):
        done += number
    return done


def run_batch(batch: UUID, limit: int) -> int:
    """Work on at most `limit` items of one batch. Return how many were taken."""
    done = 0
    while done < limit and (number := run_items(batch, min(ITEMS_AT_ONCE, limit - done))):
        done += number
    return done


def run_items(batch: UUID | None, number: int) -> int:
    """Take up to `number` items and act on each. Return how many were taken, up to the item that stopped the batch."""
    items = sorted(lease_items(batch, number))
    for place, item in enumerate(items, 1):
        # If the result of an item cannot be stored, its lease stays, and the item is taken again after the lease.
        with isolate_row("batch", item.id):
            if run_item(item) == BatchState.STOPPED:
                return place
    return len(items)


def lease_items(batch: UUID | None, number: int) -> list[LeasedItem]:
    """Lease the next items of `batch`, or (None) of the batch that was worked on longest ago.

    So no batch delays the others, even if it is large or cannot be written.
    """
    for each in [row.id for row in sql.list_due_batches.fetch_rows()] if batch is None else [batch]:
        with isolate_row("lease_items", each):
            if items := sql.lease_items.fetch_rows(batch=each, number=number, seconds=float(LEASE)):
                return items
    return []


def run_item(item: LeasedItem) -> str | None:
    """Act on one item and record the result. Return the state of its batch, or None if another process did it."""
    states: list[str | None] = []
    parameters = {**read_json(item.parameters), "note": item.note}
    if "key" in parameters:
        parameters["key"] = parameters["key"] or str(item.batch)
    try:
        perform_operation(
            item.operation, item.subject_id, item.actor, parameters, item.seen,
            lambda row, result: states.append(record_done(item, row, result)),
        )  # fmt: skip
    except Problem as problem:
        if item.tries > 1 and was_done(item):
            subjects = SUBJECTS[OPERATIONS[item.operation].subject].model._default_manager
            return record_done(item, subjects.filter(pk=item.subject_id).first(), None)
        return record_outcome(item, ItemOutcome.REFUSED, problem.detail)
    except DatabaseError as error:
        if is_transient_error(error):
            raise
        record_left_out("batch", item.id, error)
        return record_outcome(item, ItemOutcome.REFUSED, "The database refused the change: see the log for the reason.")
    return states[-1]


@retry_from_start
def record_done(item: LeasedItem, row: Any, result: Any) -> str | None:
    new = result if isinstance(result, UUID) and result != item.subject_id else None
    with transaction.atomic(savepoint=False):
        state = record_outcome(item, ItemOutcome.DONE, result=new)
        if state is not None:
            item_done.send(Batch, item=item, row=row)
    return state


def record_outcome(item: LeasedItem, outcome: ItemOutcome, reason: str = "", result: UUID | None = None) -> str | None:
    recorded = sql.record_item.fetch_row(item=item.id, outcome=outcome, reason=reason, result=result)
    return recorded and recorded.state


def was_done(item: LeasedItem) -> bool:
    """Return True if an earlier try has acted, but its result was not recorded."""
    operation = OPERATIONS[item.operation]
    return ServerEvent.objects.filter(
        subject_type=operation.subject,
        subject_id=str(item.subject_id),
        action=operation.event,
        actor=item.actor,
        at__gte=item.begun_at,
    ).exists()


@retried_atomic
def stop_batch(batch: UUID, by: str, note: str) -> None:
    """Stop a batch: no more items begin, and finished items stay as they are. Raise BatchEnded."""
    if not sql.stop_batch.fetch_rows(batch=batch, actor=by):
        raise BatchEnded
    record_action("stop_batch", by, note, ActionSubject(SubjectType.INSTANCE, batch, f"batch {batch}"))
