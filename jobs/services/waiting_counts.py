"""Cached numbers of waiting jobs of each owner, in this process.

Once some thousand jobs wait, counting them takes longer than the submission itself. So the counts are cached.
"""

import threading
import time
from typing import NamedTuple
from uuid import UUID

COUNTED_AFTER = 1.0
"""Seconds after which a count is too old."""
ROOM = 20_000
"""Number of jobs that all processes together may store for one owner in that time. If the limit is nearer, each
submission counts."""
OWNERS_LIMIT = 1000
"""Number of owners that are remembered."""


class WaitingCount(NamedTuple):
    jobs: int
    """Upper bound: jobs that were claimed since the count are not subtracted."""
    counted_at: float


counts: dict[UUID, WaitingCount] = {}
lock = threading.Lock()


def is_surely_below(limit: int, owner: UUID, number: int) -> bool:
    """Return True if `number` more jobs of an owner surely stay below the limit, so that nothing must be counted."""
    count = counts.get(owner)
    if count is None or time.monotonic() - count.counted_at > COUNTED_AFTER:
        return False
    return count.jobs + number + ROOM <= limit


def note_count(owner: UUID, jobs: int) -> None:
    """Remember a new count, which includes the jobs that were stored with it."""
    with lock:
        if len(counts) >= OWNERS_LIMIT:
            counts.clear()
        counts[owner] = WaitingCount(jobs, time.monotonic())


def add_to_count(owner: UUID, number: int) -> None:
    """Add jobs that were stored without a count."""
    with lock:
        if count := counts.get(owner):
            counts[owner] = count._replace(jobs=count.jobs + number)
