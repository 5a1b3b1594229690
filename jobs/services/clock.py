"""Correct waiting jobs and triggers after the database's clock was set back, for example by a failover.

The liveness check notices the jump (`advance_clock`), so a job waits too long for at most one and a half check
intervals. So claims need not check for it.
"""

from datetime import datetime, timedelta

import structlog
from django.db import DatabaseError
from django.db.models import F

from controlplane.core.database import transaction
from jobs.models import Trigger
from jobs.schedules import schedule_slots
from jobs.sql import sql
from jobs.states import SlotOutcome
from jobs.trigger_errors import TriggerUnusable

log = structlog.get_logger()

CORRECTED_AFTER = 3 * 3600
"""Seconds. A trigger with a fixed time of day does not run twice if the clock goes back by less, as in Debian's cron.
If it goes back by more, the clock was wrong before, and the trigger runs again."""


def follow_clock(by: float) -> None:
    """Move triggers and jobs back by `by` seconds. If this is interrupted, the next check does it again."""
    changed = follow_trigger_slots(by)
    if row := sql.follow_clock.fetch_row():
        log.warning("The database's clock was set back", seconds=round(row.by), jobs=row.jobs, triggers=changed)


@transaction.atomic
def follow_trigger_slots(by: float) -> int:
    """Compute the next slot of each trigger by the clock as it is now. Return how many changed."""
    now = sql.read_clock.fetch_only_row().now
    ahead = Trigger.objects.filter(enabled=True, next_slot_at__gt=now).order_by("id")
    changed = 0
    for trigger in ahead.select_for_update(no_key=True):
        try:
            with transaction.atomic():
                changed += follow_next_slot(trigger, now, by)
        except (DatabaseError, TriggerUnusable):
            log.exception("A trigger could not be adjusted to the clock", trigger=trigger.name)
    return changed


def follow_next_slot(trigger: Trigger, now: datetime, by: float) -> bool:
    had = trigger.slots.filter(slot__gt=now)
    had.filter(outcome=SlotOutcome.MISSED).delete()  # these slots are in the future again
    if repeats_within_day(trigger) or by > CORRECTED_AFTER:
        # Move evaluated slots to their real time, because slots with their old times will occur again.
        had.update(slot=F("slot") - timedelta(seconds=by))
    was, trigger.next_slot_at = trigger.next_slot_at, next(schedule_slots(trigger, now), None)
    trigger.save(update_fields=["next_slot_at"])
    return trigger.next_slot_at != was


def repeats_within_day(trigger: Trigger) -> bool:
    """Return True if the trigger runs every few minutes or hours, not at a time of day."""
    return trigger.cron is None or "*" in "".join(trigger.cron.split()[:2])
