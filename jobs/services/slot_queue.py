"""The queue of a trigger's slots: each slot waits here until it may start, often only for a moment.

All functions run under the lock of the trigger, so each slot starts once, however many schedulers run.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import structlog

from controlplane.core.database import transaction
from controlplane.core.transactions import is_transient_error, isolate_row, record_left_out, retry_from_start
from jobs.choices import Overlap
from jobs.models import Trigger, TriggerSlot
from jobs.services import cancellation
from jobs.services.slot_starts import start_slot
from jobs.sql import sql
from jobs.sql.rows.triggers import OpenSlot
from jobs.states import SlotOutcome

log = structlog.get_logger()

BATCH = 100
"""Triggers that are locked together."""
LEFT_OUT = {
    Overlap.SKIP: "an earlier execution had not ended",
    Overlap.QUEUE_ONE: "another slot was already queued",
    Overlap.CANCEL_RUNNING: "a later slot replaced it",
}
"""Note of a slot that the overlap leaves out."""


def begin_slots(
    trigger: Trigger, slots: Iterable[datetime], now: datetime, *, note: str = "", by: str = "", key: str | None = None
) -> int:
    """Queue slots of a trigger, and start those that may start now. Return how many started."""
    queued = sql.queue_slots.fetch_rows(trigger=trigger.pk, slots=list(slots), note=note, by=by, key=key)
    return start_queued_slots(trigger, now) if queued else 0


def start_queued_slots(trigger: Trigger, now: datetime) -> int:
    """Start the queued slots of a trigger that may start now, and leave out others. Return how many started."""
    queue = judge_queue(trigger, sql.list_open_slots.fetch_rows(trigger=trigger.pk))
    for ids, outcome, note in (
        (queue.paused, SlotOutcome.MISSED, "the trigger was paused"),
        (queue.skipped, SlotOutcome.SKIPPED, LEFT_OUT.get(Overlap(trigger.overlap), "")),
    ):
        if ids:
            TriggerSlot.objects.filter(pk__in=ids).update(outcome=outcome, note=note, body=None)
    if queue.starts:
        for slot in TriggerSlot.objects.filter(pk__in=queue.starts).order_by("slot"):
            slot.trigger = trigger
            start_slot(slot, now)
    return len(queue.starts)


class JudgedSlots(NamedTuple):
    """Queued slots by what happens to them now. The others wait."""

    starts: list[int]
    skipped: list[int]
    paused: list[int]


def judge_queue(trigger: Trigger, slots: Iterable[OpenSlot]) -> JudgedSlots:
    """Decide which slots of a trigger start now, and which are left out. `slots` are its open ones, in order."""
    by_outcome = defaultdict(list)
    for slot in slots:
        by_outcome[slot.outcome].append(slot)
    queued = by_outcome.pop(SlotOutcome.QUEUED, [])
    paused = [slot.id for slot in queued if not trigger.enabled and not slot.by]
    waiting = [slot.id for slot in queued if slot.id not in paused]
    is_busy = bool(by_outcome)
    match trigger.overlap:
        case Overlap.ALLOW:
            # A trigger with an action has one evaluation at a time.
            most = len(waiting) if trigger.action is None else 1 - len(by_outcome[SlotOutcome.EVALUATING])
            return JudgedSlots(waiting[: max(most, 0)], [], paused)
        case Overlap.CANCEL_RUNNING:
            kept = waiting[-1:]
        case Overlap.QUEUE_ONE:
            kept = waiting[: 1 if is_busy else 2]
        case _:
            kept = waiting[: 0 if is_busy else 1]
    return JudgedSlots([] if is_busy else kept[:1], [id for id in waiting if id not in kept], paused)


def start_all_queued_slots() -> int:
    """Start the queued slots of all triggers that may start now, at each tick. Return how many started."""
    return for_each_trigger(sql.find_queued_triggers, lambda trigger, row: start_queued_slots(trigger, row.now))


def cancel_replaced_executions() -> None:
    """Cancel executions that a later slot waits for (`cancel_running`)."""
    for row in sql.find_replaced_executions.fetch_rows():
        with isolate_row("executions replaced", row.id):
            cancellation.stop_executions([row.id], "CANCELLED", "replaced by a later slot of its trigger")
            cancellation.halt_tree(row.id)


@retry_from_start
def for_each_trigger(statement: Any, act: Callable[[Trigger, Any], int], batch: int = BATCH) -> int:
    """Lock the triggers that a statement finds, batch by batch, and act on each. Return the sum of the results.

    A trigger that fails does not delay the others.
    """
    count = 0
    seen: list[UUID] = []
    while True:
        with transaction.atomic():
            # The locks are held until the batch is done, so that other schedulers skip these triggers.
            rows = statement.fetch_rows(batch=batch, seen=seen)
            triggers = Trigger.objects.in_bulk([row.id for row in rows])
            for row in rows:
                try:
                    with transaction.atomic():
                        count += act(triggers[row.id], row)
                except Exception as error:
                    if is_transient_error(error):
                        raise
                    log.exception("A trigger could not be evaluated", trigger=triggers[row.id].name)
                    record_left_out("triggers evaluated", row.id, error)
                seen.append(row.id)
        if len(rows) < batch:
            return count
