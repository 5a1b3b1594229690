"""The rows of triggers.sql. Written by `python -m controlplane.core.sql_rows`."""

from datetime import datetime
from typing import NamedTuple
from uuid import UUID


class DueTrigger(NamedTuple):
    id: UUID
    now: datetime
    in_flight: bool


class QueuedTrigger(NamedTuple):
    id: UUID
    now: datetime


class QueuedSlot(NamedTuple):
    id: int


class OpenSlot(NamedTuple):
    id: int
    outcome: str
    by: str


class PausedTrigger(NamedTuple):
    id: UUID
    name: str
    failures: int


class RoutedSignal(NamedTuple):
    id: UUID
    name: str
    is_refused: bool | None
