"""The rows of heartbeats.sql. Written by `python -m controlplane.core.sql_rows`."""

from datetime import datetime
from typing import NamedTuple


class HeardServer(NamedTuple):
    state: str
    heartbeat_interval: float
    cordoned_by: str | None
    fence_after: float | None
    drain_deadline: datetime | None


class ReadFenceRow(NamedTuple):
    fence_after: float | None


class CountOwnEventsRow(NamedTuple):
    events: int


class HeartbeatAge(NamedTuple):
    age: float | None
