"""The rows of queues.sql. Written by `python -m controlplane.core.sql_rows`."""

from datetime import datetime
from typing import NamedTuple


class Queue(NamedTuple):
    namespace: str
    tags: list[str]
    waiting: int
    parked: int
    scheduled: int
    running: int
    oldest_at: datetime | None
    workers: int


class LargestQueue(NamedTuple):
    namespace: str
    tags: str
    waiting: int
    parked: int
    on_hold: int
    running: int
