"""The rows of history.sql. Written by `python -m controlplane.core.sql_rows`."""

from datetime import datetime
from typing import NamedTuple


class EndOfCount(NamedTuple):
    now: datetime


class HistoryLock(NamedTuple):
    xid: int


class CountedHistory(NamedTuple):
    since: datetime
    is_up_to_date: bool
    rows: int


class NotedPresent(NamedTuple):
    id: int


class AddedHour(NamedTuple):
    id: int


class DeletedHistory(NamedTuple):
    id: int


class HistoryPoint(NamedTuple):
    at: datetime
    now: datetime
    is_counted: bool
    completed: int
    failed: int
    cancelled: int
    expired: int
    skipped: int
    lost: int
    moved: int
    waited: str | None
    waiting: float | None
    running: float | None
    slots_used: float | None
    slots_free: float | None


class HistoryOfKey(NamedTuple):
    dimension: str
    key: str
    jobs: int
    completed: int
    failed: int
    cancelled: int
    expired: int
    skipped: int
    waited: str | None
    took: str | None
    others: int
