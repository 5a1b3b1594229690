"""An operator's action on many jobs, servers or other things: begun by a request, done item by item, wherever that is.

Each item is acted on for itself by the service that acts on one, and that is recorded in the same transaction; of steps
and executions in the next. What a process that died had taken on, another takes on when the lease is over; where the
first had acted, and not recorded it, the event tells.
"""

import time
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import orjson
import structlog
from django.db import DatabaseError
from django.dispatch import Signal

from controlplane.core.database import transaction
from controlplane.core.problems import Problem
from controlplane.core.transactions import (
    is_transient_error,
    isolate_row,
    record_left_out,
    retried_atomic,
    retry_from_start,
)
from jobs.errors import BatchEnded, KeyTaken, TryAgain
from jobs.models import Batch, BatchItem
from jobs.services.operator_actions import OPERATIONS, SUBJECTS, perform_operation
from jobs.sql import sql
from jobs.sql.rows.batches import LeasedItem
from jobs.states import BatchState, ItemOutcome
from liveness.models import ServerEvent
from liveness.services.action_events import Subject, record_action
from liveness.states import Subject as SubjectType

log = structlog.get_logger()

MOST_ITEMS = 100_000
LEASE = 60
"""Seconds for which whoever has taken items on is waited for."""
TAKEN_AT_ONCE = 20
BUDGET = 1.5
"""Seconds after which no other items are taken on: the rest is for the next tick."""

item_done = Signal()
"""Sent with `item`, and the `row` that it is about, in the transaction that records that it was acted on."""


@dataclass(frozen=True)
class BatchPlan:
    """What is to be done to some, and who wants it."""

    operation: str
    by: str
    note: str
    parameters: dict[str, Any]
    chosen: str
    query: str = ""
    label: str = ""
    namespaces: Collection[str] | None = None
    """Those that are acted within. None: all."""
    user_key: str | None = None
    """Of the user who wants it. None: a token does."""
    key: str | None = None
    """The same again finds the batch that it began."""
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
    """Have an operation done to these, each with what was `seen` of it (empty: whatever it is now). With a `key` in the
    parameters that a batch has already, it is that one."""
    plan = BatchPlan(operation, by, note, parameters, **{"key": parameters.get("key") or None, **described})
    return store_batch(plan, items) or Batch.objects.values_list("pk", flat=True).get(key=plan.key)


def submit_batch(plan: BatchPlan, ids: list[UUID], *, are_named: bool) -> tuple[UUID, bool]:
    """Have it done to these, whatever they are now: the id, and whether it is new. Raises KeyTaken where another began
    with its key meanwhile, also when the ids `are_named` by the caller, and are others."""
    if begun := store_batch(plan, [(id, "") for id in ids]):
        return begun, True
    known = find_batch(plan, ids if are_named else None)
    if known is None:
        raise TryAgain
    return known, False


def find_batch(plan: BatchPlan, ids: list[UUID] | None) -> UUID | None:
    """The batch that an earlier call with the same key began. Raises KeyTaken where that was another."""
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


def store_batch(plan: BatchPlan, items: list[tuple[UUID, str]]) -> UUID | None:
    begun = sql.begin_batch.fetch_row(
        key=plan.key, operation=plan.operation, subject_type=OPERATIONS[plan.operation].subject, label=plan.title,
        chosen=plan.chosen, query=plan.query, actor=plan.by, note=plan.note, user_key=plan.user_key,
        namespaces=plan.reached, parameters=orjson.dumps(plan.parameters).decode(),
        left_out=orjson.dumps(plan.left_out).decode(), ids=[id for id, _ in items], seen=[seen for _, seen in items],
    )  # fmt: skip
    if begun is None:
        return None
    log.info(
        "Batch begun", batch=str(begun.id), operation=plan.operation, items=len(items), actor=plan.by, reason=plan.note
    )
    return begun.id


def run_batches() -> int:
    """Go on with what there is to do, until all is done or the budget is spent; how many items were taken on."""
    began, done = time.monotonic(), 0
    while time.monotonic() - began < BUDGET and (number := run_items(None, TAKEN_AT_ONCE)):
        done += number
    return done


def run_batch(batch: UUID, limit: int) -> int:
    """Go on with one batch, with so many of its items; how many were taken on."""
    done = 0
    while done < limit and (number := run_items(batch, min(TAKEN_AT_ONCE, limit - done))):
        done += number
    return done


def run_items(batch: UUID | None, number: int) -> int:
    """Take on so many items, and act on each; how many were taken on, to the one at which its batch was stopped."""
    items = sorted(lease_items(batch, number))
    for place, item in enumerate(items, 1):
        # Of an item whose outcome cannot be kept the lease stays: it is taken on again when that is over.
        with isolate_row("batch", item.id):
            if run_item(item) == BatchState.STOPPED:
                return place
    return len(items)


def lease_items(batch: UUID | None, number: int) -> list[LeasedItem]:
    """Take on the next items, of this batch or (None) of the one that was worked on longest ago, so that a large batch
    keeps no other waiting; nor does one that cannot be written."""
    for each in [row.id for row in sql.list_due_batches.fetch_rows()] if batch is None else [batch]:
        with isolate_row("lease_items", each):
            if items := sql.lease_items.fetch_rows(batch=each, number=number, seconds=float(LEASE)):
                return items
    return []


def run_item(item: LeasedItem) -> str | None:
    """Act on one item, and note what came of it; the state of its batch. None: somebody else has done it meanwhile."""
    states: list[str | None] = []
    parameters = {**orjson.loads(item.parameters), "note": item.note}
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
        return record_outcome(item, ItemOutcome.REFUSED, "The database refuses it: the log has why.")
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
    """Whether an earlier try has acted, and only its outcome is missing."""
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
    """No other item is begun; what is done stays done. Raises BatchEnded."""
    if not sql.stop_batch.fetch_rows(batch=batch, actor=by):
        raise BatchEnded
    record_action("stop_batch", by, note, Subject(SubjectType.INSTANCE, batch, f"batch {batch}"))
