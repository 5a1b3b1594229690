"""The statements of the books here, and their rows. Written by `python -m controlplane.core.sql_rows`."""

from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from controlplane.core.statements import Statement, Statements


class AdvancedClock(NamedTuple):
    tick: int
    reading: float
    witnessed: bool
    set_back_by: float


class ReadObservedTimeRow(NamedTuple):
    reading: float


class JudgedBrake(NamedTuple):
    type: str
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


class NoteCheckFinishedRow(NamedTuple):
    finished_at: datetime


class FoldTalliesRow(NamedTuple):
    id: int


class HeardServer(NamedTuple):
    id: UUID
    type: str
    name: str
    cluster: str
    hostname: str
    pid: int | None
    version: str
    tags: list[str]
    max_concurrent: int
    capabilities: str
    instance_id: UUID
    token_version: int
    heartbeat_interval: float
    timeout: float
    termination_grace_period: float
    worker_task_restart_strategy: str
    reactivate_on_heartbeat: bool
    state: str
    state_changed_at: datetime
    state_changed_observed: float
    state_changed_tick: int
    state_actor: str
    state_reason: str
    disconnected_observed: float | None
    created_at: datetime
    created_observed: float
    last_heartbeat_at: datetime | None
    heard_observed: float
    witnessed_at: datetime | None
    metrics: str
    cordoned_by: str | None
    cordon_reason: str
    drain_deadline: datetime | None
    drain_until_observed: float | None
    drain_held: int | None
    token_id: UUID
    emptied_tick: int | None
    fence_after: float | None


class ReadFenceRow(NamedTuple):
    fence_after: float | None


class RegisteredServer(NamedTuple):
    id: UUID
    type: str
    name: str
    cluster: str
    hostname: str
    pid: int | None
    version: str
    tags: list[str]
    max_concurrent: int
    capabilities: str
    instance_id: UUID
    token_version: int
    heartbeat_interval: float
    timeout: float
    termination_grace_period: float
    worker_task_restart_strategy: str
    reactivate_on_heartbeat: bool
    state: str
    state_changed_at: datetime
    state_changed_observed: float
    state_changed_tick: int
    state_actor: str
    state_reason: str
    disconnected_observed: float | None
    created_at: datetime
    created_observed: float
    last_heartbeat_at: datetime | None
    heard_observed: float
    witnessed_at: datetime | None
    metrics: str
    cordoned_by: str | None
    cordon_reason: str
    drain_deadline: datetime | None
    drain_until_observed: float | None
    drain_held: int | None
    token_id: UUID
    emptied_tick: int | None
    fence_after: float | None
    is_new: bool


class IdRow(NamedTuple):
    id: UUID


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


class ListRowsLeftOutRow(NamedTuple):
    rows_left_out: str | None


class LockSignInsOfAddressRow(NamedTuple):
    pg_advisory_xact_lock: str


class CountSignInRow(NamedTuple):
    seconds: float


class BeginTaskRow(NamedTuple):
    task: str


class LivenessStatements(Statements):
    advance_clock: Statement[AdvancedClock]
    read_observed_time: Statement[ReadObservedTimeRow]
    judge_brake: Statement[JudgedBrake]
    disconnect_silent_servers: Statement[DisconnectedServer]
    deactivate_servers: Statement[DeactivateServersRow]
    note_check_finished: Statement[NoteCheckFinishedRow]
    fold_tallies: Statement[FoldTalliesRow]
    record_server_heartbeat: Statement[HeardServer]
    read_ended_server: Statement[HeardServer]
    read_fence: Statement[ReadFenceRow]
    register_server: Statement[RegisteredServer]
    lock_registrar: Statement[IdRow]
    note_row_left_out: Statement[NoteRowLeftOutRow]
    allow_event_deletion: Statement[AllowEventDeletionRow]
    scan_events: Statement[ScannedNumbers]
    delete_events: Statement[Deleted]
    forbid_event_deletion: Statement[ForbidEventDeletionRow]
    scan_heartbeats: Statement[ScannedNumbers]
    delete_heartbeats: Statement[Deleted]
    list_facets: Statement[ServerFacets]
    list_rows_left_out: Statement[ListRowsLeftOutRow]
    lock_sign_ins_of_address: Statement[LockSignInsOfAddressRow]
    count_sign_in: Statement[CountSignInRow]
    begin_task: Statement[BeginTaskRow]
