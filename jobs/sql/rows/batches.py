"""The rows of batches.sql. Written by `python -m controlplane.core.sql_rows`."""

from datetime import datetime
from typing import NamedTuple
from uuid import UUID


class LeasedItem(NamedTuple):
    id: int
    batch: UUID
    subject_id: UUID
    seen: str
    tries: int
    operation: str
    label: str
    actor: str
    user_key: str | None
    note: str
    parameters: str
    begun_at: datetime


class RecordItemRow(NamedTuple):
    state: str


class ScannedIds(NamedTuple):
    last: UUID | None
    due: int
    has_old: bool


class Deleted(NamedTuple):
    deleted: int
