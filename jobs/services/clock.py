"""What waits for a moment of the database's clock follows it when it is set back, as a failover may do.

Seen by the tick (`advance_clock`) when it stood before the tick before: what is hidden then is hidden no longer
than one and a half check intervals. Claims pay nothing for it.
"""

from datetime import timedelta

import structlog
from django.db import DatabaseError
from django.db.models import F

from controlplane.core.database import transaction
from jobs.models import Trigger
from jobs.services import evaluations
from jobs.sql import sql
from jobs.states import SlotOutcome

log = structlog.get_logger()

CORRECTED_AFTER = 3 * 3600
"""Seconds. What begins at a fixed time of day does not begin twice when a clock goes back by less, as Debian's cron has
it; by more, and the clock was wrong."""


def follow_clock(by: float) -> None:
    """Set triggers and jobs back by so many seconds. Interrupted, it is done again by the next check."""
    changed = follow_trigger_slots(by)
    if row := sql.follow_clock.fetch_row():
        log.warning("The database's clock was set back", seconds=round(row.by), jobs=row.jobs, triggers=changed)


@transaction.atomic
def follow_trigger_slots(by: float) -> int:
    """The next slot of each trigger is the next by the clock as it is now; how many changed."""
    now = sql.read_clock.fetch_only_row().now
    ahead = Trigger.objects.filter(enabled=True, next_slot_at__gt=now).order_by("id")
    changed = 0
    for trigger in ahead.select_for_update(no_key=True):
        try:
            with transaction.atomic():
                changed += follow_next_slot(trigger, now, by)
        except DatabaseError:
            log.exception("A trigger does not follow the clock", trigger=trigger.name)
    return changed


def follow_next_slot(trigger: Trigger, now: object, by: float) -> bool:
    had = trigger.slots.filter(slot__gt=now)
    had.filter(outcome=SlotOutcome.MISSED).delete()  # they are still to come
    if repeats_within_day(trigger) or by > CORRECTED_AFTER:
        # Those that were evaluated were so at these moments; the slots of their names come again.
        had.update(slot=F("slot") - timedelta(seconds=by))
    was, trigger.next_slot_at = trigger.next_slot_at, next(evaluations.schedule_slots(trigger, now), None)  # type: ignore[arg-type]
    trigger.save(update_fields=["next_slot_at"])
    return trigger.next_slot_at != was


def repeats_within_day(trigger: Trigger) -> bool:
    """Whether it goes by the minute or the hour, not by the time of day."""
    return trigger.cron is None or "*" in "".join(trigger.cron.split()[:2])
