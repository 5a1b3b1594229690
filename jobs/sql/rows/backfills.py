"""The rows of backfills.sql. Written by `python -m controlplane.core.sql_rows`."""

from typing import NamedTuple
from uuid import UUID


class BackfillSlot(NamedTuple):
    id: int


class BackfillCounts(NamedTuple):
    id: UUID
    waiting: int
    running: int
