"""The rows of holds.sql. Written by `python -m controlplane.core.sql_rows`."""

from datetime import datetime
from typing import NamedTuple
from uuid import UUID


class RefusingHold(NamedTuple):
    id: UUID
    kind: str
    value: str
    note: str


class ParkedJobs(NamedTuple):
    id: UUID
    name: str | None
    parked: int


class HeldJob(NamedTuple):
    job: UUID
    hold: UUID


class HoldOfOne(NamedTuple):
    id: UUID
    kind: str
    value: str
    mode: str
    note: str
    by: str
    created_at: datetime
    ends_at: datetime | None
