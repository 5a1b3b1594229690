"""The rows of hold_parking.sql. Written by `python -m controlplane.core.sql_rows`."""

from typing import NamedTuple
from uuid import UUID


class ParkedBatch(NamedTuple):
    read: int
    last: UUID | None
    parked: int
    unparked: int


class UnparkedBatch(NamedTuple):
    unparked: int
