"""How many jobs of an owner wait, as this process knows it: to count them anew at each submission takes longer than to
submit, once some thousands wait."""

import threading
import time
from typing import NamedTuple
from uuid import UUID

COUNTED_AFTER = 1.0
"""Seconds for which a count is good."""
ROOM = 20_000
"""Jobs that all processes together may store for one owner meanwhile. Where less is left below the limit, each
submission counts."""
OWNERS_LIMIT = 1000
"""Owners that are kept in mind."""


class WaitingCount(NamedTuple):
    jobs: int
    """At most: what has been claimed since is not taken off."""
    counted_at: float


counts: dict[UUID, WaitingCount] = {}
lock = threading.Lock()


def is_surely_below(limit: int, owner: UUID, number: int) -> bool:
    """Whether `number` more of an owner surely stay below the limit, so that nobody needs to count."""
    count = counts.get(owner)
    if count is None or time.monotonic() - count.counted_at > COUNTED_AFTER:
        return False
    return count.jobs + number + ROOM <= limit


def note_count(owner: UUID, jobs: int) -> None:
    """So many were counted just now, with those that were stored after it."""
    with lock:
        if len(counts) >= OWNERS_LIMIT:
            counts.clear()
        counts[owner] = WaitingCount(jobs, time.monotonic())


def add_to_count(owner: UUID, number: int) -> None:
    """So many more were stored."""
    with lock:
        if count := counts.get(owner):
            counts[owner] = count._replace(jobs=count.jobs + number)
