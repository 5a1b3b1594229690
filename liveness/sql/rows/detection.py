"""The rows of detection.sql. Written by `python -m controlplane.core.sql_rows`."""

from datetime import datetime
from typing import NamedTuple
from uuid import UUID


class AdvancedClock(NamedTuple):
    tick: int
    earlier: float
    reading: float
    witnessed: bool
    set_back_by: float


class StaleWorker(NamedTuple):
    id: UUID
    type: str
    name: str
    silence: float


class StaleServer(NamedTuple):
    id: UUID
    type: str
    name: str
    silence: float


class ReadObservedTimeRow(NamedTuple):
    reading: float
    is_due: bool


class JudgedBrake(NamedTuple):
    type: str
    namespace: str
    cluster: str
    silent: int
    alive: int
    is_on: bool
    changed: bool


class DisconnectedServer(NamedTuple):
    id: UUID
    type: str
    name: str
    reason: str
    silence: float


class DeactivateServersRow(NamedTuple):
    id: UUID
    name: str
    reason: str


class EndExpiredMaintenanceRow(NamedTuple):
    cluster: str


class UncordonedServer(NamedTuple):
    id: UUID
    name: str


class NoteCheckFinishedRow(NamedTuple):
    finished_at: datetime


class FoldTalliesRow(NamedTuple):
    id: int
