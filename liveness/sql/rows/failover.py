"""The rows of failover.sql. Written by `python -m controlplane.core.sql_rows`."""

from datetime import datetime
from typing import NamedTuple


class CompareTimelineRow(NamedTuple):
    system_identifier: str
    timeline: int
    position: int
    known: bool
    same_server: bool


class LockTimelinesRow(NamedTuple):
    id: int


class NotedTimeline(NamedTuple):
    id: int
    timeline: int
    former: int | None
    workers: int
    last_change_at: datetime | None


class ForgetUnheardServersRow(NamedTuple):
    workers: int
