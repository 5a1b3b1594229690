"""The rows of failover.sql. Written by `python -m controlplane.core.sql_rows`."""

from datetime import datetime
from typing import NamedTuple


class RaiseAttemptCountsRow(NamedTuple):
    jobs: int


class ReadNewTimelineRow(NamedTuple):
    timeline: int
    last_change_at: datetime | None
    lost_bytes: int | None
