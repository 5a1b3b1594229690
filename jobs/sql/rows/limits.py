"""The rows of limits.sql. Written by `python -m controlplane.core.sql_rows`."""

from datetime import datetime
from typing import NamedTuple


class LimitRecheckToTake(NamedTuple):
    id: int
    key: str
    has_jobs: bool
    is_waited_for: bool


class LockedLimitKeys(NamedTuple):
    locked: int


class SettledKeys(NamedTuple):
    parked: int
    unparked: int
    moved: int


class FreedSlot(NamedTuple):
    id: int


class UsedLimitKey(NamedTuple):
    key: str
    used: int
    allowed: int | None
    parked: int
    oldest_at: datetime | None


class CountedRepair(NamedTuple):
    what: str
