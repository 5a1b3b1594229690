"""The queue of a trigger's slots: each slot waits here until it may start, often only for a moment.

All functions run under the lock of the trigger, so each slot starts once, however many schedulers run.
"""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any
from uuid import UUID

import structlog

from controlplane.core.database import transaction
from controlplane.core.transactions import is_transient_error, record_left_out, retry_from_start
from jobs.models import Trigger, TriggerSlot
from jobs.services.slot_starts import start_slot
from jobs.sql import sql
from jobs.sql.rows.triggers import OpenSlot
from jobs.states import SlotOutcome

log = structlog.get_logger()

BATCH = 100
"""Triggers that are locked together."""
PAUSED = "the trigger was paused"


def begin_slots(
    trigger: Trigger, slots: Iterable[datetime], now: datetime, *, note: str = "", by: str = "", key: str | None = None
) -> int:
    """Queue slots of a trigger, and start those that may start now. Return how many started."""
    queued = sql.queue_slots.fetch_rows(trigger=trigger.pk, slots=list(slots), note=note, by=by, key=key)
    return start_queued_slots(trigger, now) if queued else 0


def start_queued_slots(trigger: Trigger, now: datetime) -> int:
    """Start the queued slots of a trigger that may start now. Return how many started."""
    starts, left_out = judge_queue(trigger, sql.list_open_slots.fetch_rows(trigger=trigger.pk))
    for note, ids in left_out.items():
        TriggerSlot.objects.filter(pk__in=ids).update(outcome=SlotOutcome.MISSED, note=note)
    if starts:
        for slot in TriggerSlot.objects.filter(pk__in=starts).order_by("slot"):
            slot.trigger = trigger
            start_slot(slot, now)
    return len(starts)


def judge_queue(trigger: Trigger, slots: Iterable[OpenSlot]) -> tuple[list[int], dict[str, list[int]]]:
    """Return the queued slots that start now, and those that are left out, by the reason."""
    slots = list(slots)
    queue = [slot for slot in slots if slot.outcome == SlotOutcome.QUEUED]
    paused = [slot.id for slot in queue if not trigger.enabled and not slot.by]
    waiting = [slot.id for slot in queue if slot.id not in paused]
    if trigger.action is not None:
        waiting = waiting[: 0 if len(queue) < len(slots) else 1]  # it has one evaluation at a time
    return waiting, {PAUSED: paused} if paused else {}


def start_all_queued_slots() -> int:
    """Start the queued slots of all triggers that may start now, at each tick. Return how many started."""
    return for_each_trigger(sql.find_queued_triggers, lambda trigger, row: start_queued_slots(trigger, row.now))


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
