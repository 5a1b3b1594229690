"""The rows that the statements of the books here return. Written by `python -m controlplane.core.sql_rows`."""

from datetime import datetime
from typing import NamedTuple
from uuid import UUID


class AdvancedClock(NamedTuple):
    tick: int
    reading: float
    witnessed: bool
    set_back_by: float


class ReadObservedTimeRow(NamedTuple):
    reading: float
    is_due: bool


class JudgedBrake(NamedTuple):
    type: str
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


class HeardServer(NamedTuple):
    state: str
    heartbeat_interval: float
    cordoned_by: str | None
    fence_after: float | None
    drain_deadline: datetime | None


class ReadFenceRow(NamedTuple):
    fence_after: float | None


class RegisteredServer(NamedTuple):
    id: UUID
    token_id: UUID
    token_version: int
    type: str
    name: str
    cluster: str
    state: str
    heartbeat_interval: float
    timeout: float
    termination_grace_period: float
    worker_task_restart_strategy: str
    fence_after: float | None
    is_new: bool


class IdRow(NamedTuple):
    id: UUID


class MoveClockRow(NamedTuple):
    tick: int


class NoteRowLeftOutRow(NamedTuple):
    pass


class AllowEventDeletionRow(NamedTuple):
    set_config: str


class ScannedNumbers(NamedTuple):
    last: int | None
    due: int
    has_old: bool


class Deleted(NamedTuple):
    deleted: int


class ForbidEventDeletionRow(NamedTuple):
    set_config: str


class ServerFacets(NamedTuple):
    versions: str
    tags: list[str]
    namespaces: list[str]


class ListRowsLeftOutRow(NamedTuple):
    rows_left_out: str | None


class ListMaintenancesRow(NamedTuple):
    maintenances: str | None


class ReadEventsHorizonRow(NamedTuple):
    at: datetime


class LockSignInsOfAddressRow(NamedTuple):
    pg_advisory_xact_lock: str


class CountSignInRow(NamedTuple):
    seconds: float


class BeginTaskRow(NamedTuple):
    task: str
