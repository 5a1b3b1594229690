"""The rows of holds.sql. Written by `python -m controlplane.core.sql_rows`."""

from typing import NamedTuple
from uuid import UUID


class RefusingHold(NamedTuple):
    id: UUID
    kind: str
    value: str
    note: str


class ParkedJobs(NamedTuple):
    id: UUID
    parked: int


class HeldJob(NamedTuple):
    job: UUID
    hold: UUID
