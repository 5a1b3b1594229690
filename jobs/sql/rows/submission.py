"""The rows of submission.sql. Written by `python -m controlplane.core.sql_rows`."""

from datetime import datetime
from typing import NamedTuple
from uuid import UUID


class LockWait(NamedTuple):
    lock_timeout: str


class SubmittedJob(NamedTuple):
    place: int
    id: UUID
    missing_worker: str | None
    is_execution: bool
    waiting: int
    tag_sets: int
    stored: int
    action: str
    payload: str | None
    created_at: datetime
    available_at: datetime
    good_until: datetime | None
    left_out: list[str] | None
    without_worker: str | None
    on_hold: str | None
    hold: UUID | None
    is_parked: bool
    has_quota: bool
