"""The rows of retention.sql. Written by `python -m controlplane.core.sql_rows`."""

from datetime import datetime
from typing import NamedTuple


class RetentionLimits(NamedTuple):
    jobs: datetime | None
    executions: datetime | None
    servers: datetime | None
    events: datetime | None
    server_heartbeats: datetime | None
    attempt_heartbeats: datetime | None
    batches: datetime | None
    signals: datetime | None


class ScannedNumbers(NamedTuple):
    last: int | None
    due: int
    has_old: bool
