"""The rows that the statements of the books here return. Written by `python -m controlplane.core.sql_rows`."""

from datetime import datetime
from typing import NamedTuple
from uuid import UUID


class AlertFact(NamedTuple):
    rule: str
    cluster: str
    servers: int
    names: list[str]


class NotedIncidents(NamedTuple):
    opened: int
    ended: int
    messages: int


class IdRow(NamedTuple):
    id: UUID


class LeasedMessage(NamedTuple):
    id: UUID
    event: str
    channel: str
    payload: str
    tries: int
    created_at: datetime


class NotedDelivery(NamedTuple):
    sent_at: datetime | None
    next_try_at: datetime | None


class MutedAlerts(NamedTuple):
    until: datetime


class LeasedItem(NamedTuple):
    id: int
    batch: UUID
    subject_id: UUID
    seen: str
    tries: int
    operation: str
    label: str
    actor: str
    user_key: str | None
    note: str
    parameters: str
    begun_at: datetime


class RecordItemRow(NamedTuple):
    state: str


class ScannedIds(NamedTuple):
    last: UUID | None
    due: int
    has_old: bool


class Deleted(NamedTuple):
    deleted: int


class OverdueExecution(NamedTuple):
    id: UUID
    timeout_seconds: float


class HaltStepsRow(NamedTuple):
    execution: UUID


class MoveRedeliveredTasksRow(NamedTuple):
    attempt: UUID
    job: UUID
    server: UUID
    attempt_state: str
    job_state: str
    reason: str
    execution: UUID
    kind: str


class EndTasksRow(NamedTuple):
    attempt: UUID
    job: UUID
    server: UUID
    attempt_state: str
    job_state: str
    reason: str
    execution: UUID
    kind: str


class CountTasksRow(NamedTuple):
    name: str


class JudgeReportedTasksRow(NamedTuple):
    attempt: UUID
    verdict: str


class ReadReportingServerRow(NamedTuple):
    state: str
    token_version: int


class GivenAttempt(NamedTuple):
    server: UUID | None
    obstacle: str | None
    id: UUID | None
    number: int
    job: UUID
    kind: str
    action: str
    payload: str | None
    timeout_seconds: float | None
    execution: UUID | None
    step: str | None
    checkpoint: str | None
    traceparent: str | None
    former_traceparent: str | None


class FollowClockRow(NamedTuple):
    by: float
    jobs: int


class ReadClockRow(NamedTuple):
    now: datetime


class FindTornJobsRow(NamedTuple):
    id: UUID
    child: UUID | None


class MendExecutionRow(NamedTuple):
    id: UUID
    child_of: UUID | None


class SubmittedExecution(NamedTuple):
    place: int
    execution: UUID
    child_of: UUID | None
    missing_worker: str | None
    waiting: int


class StepToRestart(NamedTuple):
    execution: UUID
    step: str
    job: UUID
    is_kept: bool


class ChildToBegin(NamedTuple):
    step: UUID
    action: str
    payload: str
    owner: UUID | None
    namespace: str
    root: UUID
    restarts: UUID | None


class StepTimes(NamedTuple):
    job: UUID
    step: str
    state: str
    position: int
    is_hook: bool
    is_kept: bool
    free_at: datetime
    begun_at: datetime | None
    finished_at: datetime | None
    server_state: str | None
    needs: list[UUID]


class HeardWorker(NamedTuple):
    state: str
    heartbeat_interval: float
    timeout: float
    termination_grace_period: float
    worker_task_restart_strategy: str
    cordoned_by: str | None
    fence_after: float | None
    drain_deadline: datetime | None
    maintenance: bool
    cancel: list[UUID]
    lost: list[UUID]
    forsaken: list[UUID]
    unknown: list[UUID]
    send: list[str]


class PlainlyHeardServer(NamedTuple):
    id: UUID
    token_version: int
    state: str
    heartbeat_interval: float
    cordoned_by: str | None
    fence_after: float | None
    drain_deadline: datetime | None
    maintenance: bool
    cancel: list[UUID]


class EndedAttempts(NamedTuple):
    state: str
    job_state: str
    server: str
    reason: str
    jobs: int
    executions: list[UUID] | None
    evaluations: list[UUID] | None
    listed: list[UUID]
    attempts: list[UUID]


class ClaimableJobs(NamedTuple):
    namespace: str
    tags: list[str]
    refused_by: list[UUID]
    jobs: list[UUID]


class ServerOffer(NamedTuple):
    namespace: str
    tags: list[str]
    has_work: bool


class WorkerLoad(NamedTuple):
    server: UUID
    namespace: str
    tags: list[str]
    held: int
    slots: int


class EndOfCount(NamedTuple):
    now: datetime


class HistoryLock(NamedTuple):
    xid: int


class CountedHistory(NamedTuple):
    since: datetime
    is_up_to_date: bool
    rows: int


class NotedPresent(NamedTuple):
    id: int


class AddedHour(NamedTuple):
    id: int


class DeletedHistory(NamedTuple):
    id: int


class HistoryPoint(NamedTuple):
    at: datetime
    now: datetime
    is_counted: bool
    completed: int
    failed: int
    cancelled: int
    expired: int
    skipped: int
    lost: int
    moved: int
    waited: str | None
    waiting: float | None
    running: float | None
    slots_used: float | None
    slots_free: float | None


class HistoryOfKey(NamedTuple):
    key: str
    jobs: int
    completed: int
    failed: int
    cancelled: int
    expired: int
    skipped: int
    waited: str | None
    took: str | None
    others: int


class LockedJob(NamedTuple):
    job: UUID
    state: str
    is_cancelling: bool
    execution: UUID | None
    is_step: bool
    kind: str
    is_held: bool
    is_execution: bool
    is_quarantined: bool
    is_resubmitted: bool
    child: UUID | None


class EndedAttempt(NamedTuple):
    attempt: UUID
    job: UUID
    server: UUID
    attempt_state: str
    job_state: str
    reason: str
    execution: UUID | None
    kind: str


class ResubmitEndedJobRow(NamedTuple):
    id: UUID
    is_execution: bool


class RetiredServer(NamedTuple):
    id: UUID
    name: str
    reason: str


class PropagatedEnd(NamedTuple):
    what: str
    id: UUID
    execution: UUID | None
    state: str | None


class StoreSupersededReportsRow(NamedTuple):
    id: int


class StoredLines(NamedTuple):
    place: int
    state: str


class RetentionLimits(NamedTuple):
    jobs: datetime | None
    executions: datetime | None
    servers: datetime | None
    events: datetime | None
    server_heartbeats: datetime | None
    attempt_heartbeats: datetime | None
    batches: datetime | None


class ScannedNumbers(NamedTuple):
    last: int | None
    due: int
    has_old: bool


class RelaxGuardsRow(NamedTuple):
    set_config: str


class MakeServersRow(NamedTuple):
    id: UUID
    works: bool


class MakeJobsRow(NamedTuple):
    jobs: int


class InstanceFigures(NamedTuple):
    now: datetime
    observed: float
    witnessed: bool
    observed_lag: float
    check_age: float | None
    took: float | None
    finished: float | None
    counts: str | None
    flags: str | None
    flagged_tags: str | None
    to_be_failed: str | None
    about: str | None
    waiting: float | None
    brakes: str | None
    maintenances: str | None
    rows_left_out: str | None


class FlaggedJob(NamedTuple):
    id: UUID
    flag: str


class PlacementRow(NamedTuple):
    state: str
    waits_until: datetime | None
    stops_on: str | None
    server: UUID | None
    name: str | None
    filter: str | None
    detail: str | None
    load: float | None


class WrittenLine(NamedTuple):
    id: int
    at: datetime
    attempt: int
    stream: str
    line: str


class FoundLine(NamedTuple):
    first: int | None
    last: int | None
    looked: int
    id: int | None
    at: datetime | None
    attempt: int | None
    stream: str | None
    line: str | None


class SubmittedJob(NamedTuple):
    place: int
    id: UUID
    missing_worker: str | None
    is_execution: bool
    waiting: int


class ExpiredJobs(NamedTuple):
    state: str
    jobs: int
    executions: list[UUID] | None
    evaluations: list[UUID] | None
    listed: list[UUID]


class UnmatchedJobs(NamedTuple):
    state: str
    required_tags: list[str]
    reason: str
    jobs: int
    executions: list[UUID] | None
    evaluations: list[UUID] | None
    listed: list[UUID]


class StaleAttempt(NamedTuple):
    id: UUID
    number: int
    state: str
    job: UUID
    server: UUID
    server_name: str
    hostname: str | None
    pid: int | None
    silence: float
    alive: float
    last_sign_at: datetime


class CountStaleAttemptsRow(NamedTuple):
    state: str
    attempts: int


class ReleasedAttempt(NamedTuple):
    attempt: UUID
    job: UUID
    server: UUID
    name: str
    disobeys: bool


class DueTrigger(NamedTuple):
    id: UUID
    now: datetime
    in_flight: bool


class Incidents(NamedTuple):
    failed_lately: int
    failed_before: int
    quarantined: int
    incident: str | None


class ClusterFigures(NamedTuple):
    counts: str | None
    waiting: float | None
    held_by_lost_server: int
