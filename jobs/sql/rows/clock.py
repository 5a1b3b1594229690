"""The rows of clock.sql. Written by `python -m controlplane.core.sql_rows`."""

from datetime import datetime
from typing import NamedTuple


class FollowClockRow(NamedTuple):
    by: float
    jobs: int


class ReadClockRow(NamedTuple):
    now: datetime
