"""Backfills: runs of a trigger for the past slots of a period, some at a time.

A backfill also works while its trigger is paused. It ignores the overlap, and its failures do not pause the trigger.
"""

from datetime import datetime, timedelta
from itertools import islice, takewhile
from uuid import UUID

import structlog

from controlplane.core.transactions import isolate_row, retried_atomic
from jobs.models import Backfill, TriggerSlot
from jobs.schedules import unbounded_slots
from jobs.services.slot_starts import start_slot
from jobs.services.triggers import lock_trigger, trigger_subject
from jobs.sql import sql
from jobs.states import BackfillState
from jobs.trigger_errors import BackfillEnded, BackfillUnknown, NoSchedule, WrongPeriod
from liveness.services.action_events import record_action

log = structlog.get_logger()

SLOTS_LIMIT = 10_000
"""Largest number of slots of one backfill."""


@retried_atomic
def begin_backfill(
    trigger: UUID, start: datetime, end: datetime, max_running: int, by: str, *, note: str = "", key: str | None = None
) -> tuple[Backfill, bool]:
    """Begin a backfill of the slots from `start` to just before `end`. Return it, and True if it is new.

    The `start_at` and `end_at` of the trigger do not limit it. A call with the same key returns the same backfill.
    Raises TriggerUnknown, TriggerUnusable, NoSchedule and WrongPeriod.
    """
    existing = lock_trigger(trigger)
    if key is not None and (known := existing.backfills.filter(key=key).first()):
        return known, False
    if existing.on_signal is not None:
        raise NoSchedule
    now = sql.read_clock.fetch_only_row().now
    if end > now:
        raise refuse_period("to", f"{end.isoformat()} is in the future; give a time until {now.isoformat()}.")
    if start >= end:
        raise refuse_period("from", f"{start.isoformat()} is not before {end.isoformat()}; give an earlier time.")
    upcoming = unbounded_slots(existing, start - timedelta(microseconds=1))
    slots = list(islice(takewhile(end.__gt__, upcoming), SLOTS_LIMIT + 1))
    if len(slots) > SLOTS_LIMIT:
        raise refuse_period("to", f"The period has more than {SLOTS_LIMIT} slots; give an earlier time.")
    backfill = Backfill.objects.create(
        trigger=existing, start_at=start, end_at=end, max_running=max_running, by=by, note=note, key=key
    )
    queued = sql.queue_backfill.fetch_rows(trigger=trigger, backfill=backfill.pk, slots=slots, by=by)
    Backfill.objects.filter(pk=backfill.pk).update(total=len(queued))
    record_action("begin_backfill", by, note, trigger_subject(existing))
    return Backfill.objects.get(pk=backfill.pk), True


def refuse_period(field: str, detail: str) -> WrongPeriod:
    return WrongPeriod(detail, errors={field: [detail]})


@retried_atomic
def stop_backfill(trigger: UUID, backfill: UUID, by: str, note: str) -> Backfill:
    """Stop a backfill: no further slot starts. Raises BackfillUnknown and BackfillEnded."""
    existing = find_backfill(trigger, backfill)
    if not sql.stop_backfill.fetch_rows(backfill=backfill):
        existing.refresh_from_db(fields=["state"])
        raise BackfillEnded(f"This backfill is {existing.state} and cannot be stopped any more.", state=existing.state)
    record_action("stop_backfill", by, note, trigger_subject(existing.trigger))
    existing.refresh_from_db()
    return existing


def find_backfill(trigger: UUID, backfill: UUID) -> Backfill:
    """Return a backfill of a trigger. Raises BackfillUnknown."""
    existing = Backfill.objects.select_related("trigger").filter(pk=backfill, trigger=trigger).first()
    if existing is None:
        raise BackfillUnknown
    return existing


def continue_backfills() -> int:
    """Start the next slots of all backfills, at each tick. Return how many started."""
    count = 0
    for row in sql.find_running_backfills.fetch_rows():
        with isolate_row("backfills continued", row.id):
            count += continue_backfill(row.id)
    sql.complete_backfills.fetch_rows()
    return count


@retried_atomic
def continue_backfill(backfill: UUID) -> int:
    """Start the next slots of a backfill, up to its `max_running`. Another scheduler may have it locked."""
    running = Backfill.objects.filter(pk=backfill, state=BackfillState.RUNNING).select_related("trigger")
    existing = running.select_for_update(no_key=True, skip_locked=True, of=["self"]).first()
    if existing is None:
        return 0
    now = sql.read_clock.fetch_only_row().now
    starts = [row.id for row in sql.list_backfill_slots_to_start.fetch_rows(backfill=backfill)]
    for slot in TriggerSlot.objects.filter(pk__in=starts).order_by("slot"):
        slot.trigger = existing.trigger
        start_slot(slot, now)
    return len(starts)
