"""Compute the slots of triggers' schedules.

A stored schedule may be invalid on this system, for example because an upgrade removed its time zone. Then each
function raises TriggerUnusable, and the pages and the API show the reason instead of failing.
"""

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import chain, islice
from typing import Any
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from jobs.trigger_errors import TriggerUnusable


def find_zone(name: str) -> ZoneInfo:
    """Return a time zone by name. Raise TriggerUnusable if this system does not have it."""
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError):  # the name is a path, a folder or too long, or there is no such zone
        raise TriggerUnusable(f'{name!r} is not a time zone of this system; use one like "Europe/Zurich".') from None


def read_cron(cron: str, after: datetime) -> Iterator[datetime]:
    """Return the times of a cron expression after `after`. Raise TriggerUnusable if it is invalid."""
    try:
        moments: Iterator[datetime] = CronSim(cron, after)
    except (CronSimError, OverflowError) as error:
        raise TriggerUnusable(f'{cron!r} is not a cron expression like "*/5 * * * *": {error}.') from None
    return moments


def schedule_slots(trigger: Any, after: datetime) -> Iterator[datetime]:
    """Yield the slots of a trigger after a time, in order and in UTC, within its `start_at` and `end_at`.

    Raise TriggerUnusable.
    """
    if trigger.start_at is not None:
        after = max(after, trigger.start_at - timedelta(microseconds=1))
    for slot in unbounded_slots(trigger, after):
        if trigger.end_at is not None and slot > trigger.end_at:
            return
        yield slot


def unbounded_slots(trigger: Any, after: datetime) -> Iterator[datetime]:
    """Yield the slots after a time as if the trigger had no `start_at` and `end_at`. Raise TriggerUnusable.

    Cron expressions use the trigger's time zone; days on which clocks change follow Debian's cron. Intervals are
    counted from the trigger's creation.
    """
    if trigger.on_signal is not None:
        return
    if trigger.cron is not None:
        # Compare in UTC. Within one time zone Python compares only wall times, so the two 2:30 of a night would be
        # equal.
        for slot in read_cron(trigger.cron, after.astimezone(find_zone(trigger.timezone))):
            moment = slot.astimezone(UTC)
            if moment > after:  # in a repeated hour, a daily slot has already occurred the first time
                yield moment
        return
    with suppress(OverflowError):  # there are no slots after the year 9999
        step = timedelta(seconds=trigger.interval_seconds)
        if step <= timedelta(0):
            raise TriggerUnusable(f"The interval of {trigger.interval_seconds:g} s is too short; use at least 1 s.")
        count = (after - trigger.created_at) // step
        while True:
            count += 1
            yield trigger.created_at + count * step


def start_delay(trigger: Any) -> float:
    """Return the seconds by which each slot of a trigger starts late.

    Each trigger has its own part of its `jitter_seconds`, so triggers with the same schedule start one after another,
    and slots stay in order. The rule `start_delay` computes the same in SQL.
    """
    share: float = (trigger.pk.int & 0xFFFFFFFF) / 2**32  # the last bits of its id are random
    return share * trigger.jitter_seconds


def upcoming_slots(trigger: Any, now: datetime, count: int) -> list[datetime]:
    """Return the next `count` slots of a trigger.

    For a paused trigger, return the slots that it would have if enabled.
    """
    if not trigger.enabled or trigger.next_slot_at is None:
        return list(islice(schedule_slots(trigger, now), count))
    return list(islice(chain([trigger.next_slot_at], schedule_slots(trigger, trigger.next_slot_at)), count))
