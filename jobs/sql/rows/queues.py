"""The rows of queues.sql. Written by `python -m controlplane.core.sql_rows`."""

from datetime import datetime
from typing import NamedTuple


class Queue(NamedTuple):
    namespace: str
    tags: list[str]
    waiting: int
    parked: int
    on_hold: int
    in_loops: int
    scheduled: int
    running: int
    oldest_at: datetime | None
    hold: str | None
    workers: int


class LargestQueue(NamedTuple):
    namespace: str
    tags: str
    waiting: int
    parked: int
    on_hold: int
    in_loops: int
    running: int


class QueueRate(NamedTuple):
    namespace: str
    tags: list[str]
    submitted: int
    submitted_in: float
    ended: int
    ended_in: float
    chart: str | None
    chart_minutes: int
