"""The rows of selectors.sql. Written by `python -m controlplane.core.sql_rows`."""

from datetime import datetime
from typing import NamedTuple
from uuid import UUID


class InstanceFigures(NamedTuple):
    now: datetime
    observed: float
    witnessed: bool
    observed_lag: float
    check_age: float | None
    took: float | None
    finished: float | None
    counts: str | None
    flags: str | None
    flagged_tags: str | None
    to_be_failed: str | None
    about: str | None
    waiting: float | None
    brakes: str | None
    maintenances: str | None
    rows_left_out: str | None
    oldest_snapshot: str | None
    holds: str | None


class JobCounts(NamedTuple):
    counts: str | None
    about: str | None


class FlaggedJob(NamedTuple):
    id: UUID
    flag: str


class JobsAhead(NamedTuple):
    jobs: int


class Prospect(NamedTuple):
    id: UUID
    flag: str | None
    fails_in: float | None


class PlacementRow(NamedTuple):
    state: str
    parked_by: str | None
    waits_until: datetime | None
    stops_on: str | None
    hold: str | None
    server: UUID | None
    name: str | None
    filter: str | None
    detail: str | None
    load: float | None


class WrittenLine(NamedTuple):
    id: int
    at: datetime
    attempt: int
    stream: str
    line: str


class ServerLine(NamedTuple):
    place: int
    at: datetime
    code: str
    step: str | None
    server: UUID | None
    line: str


class FoundLine(NamedTuple):
    first: int | None
    last: int | None
    looked: int
    id: int | None
    at: datetime | None
    attempt: int | None
    stream: str | None
    line: str | None
