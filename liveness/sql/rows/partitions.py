"""The rows of partitions.sql. Written by `python -m controlplane.core.sql_rows`."""

from datetime import datetime
from typing import NamedTuple


class Partition(NamedTuple):
    name: str
    is_default: bool
    begins: datetime | None
    ends: datetime | None


class Day(NamedTuple):
    begins: datetime
    ends: datetime


class DefaultPartition(NamedTuple):
    parent: str
    rows: int
