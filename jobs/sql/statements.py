"""The statements of the books here, and their rows. Written by `python -m controlplane.core.sql_rows`."""

from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from controlplane.core.statements import Statement, Statements


class OverdueExecution(NamedTuple):
    id: UUID
    timeout_seconds: float


class IdRow(NamedTuple):
    id: UUID


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


class ChildToBegin(NamedTuple):
    step: UUID
    action: str
    payload: str
    owner: UUID | None
    root: UUID


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


class ScannedIds(NamedTuple):
    last: UUID | None
    due: int
    has_old: bool


class Deleted(NamedTuple):
    deleted: int


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
    about: str | None
    waiting: float | None
    brakes: str | None
    maintenance: str | None
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


class JobsStatements(Statements):
    find_overdue_executions: Statement[OverdueExecution]
    cancel_executions: Statement[IdRow]
    find_halting_trees: Statement[IdRow]
    halt_steps: Statement[HaltStepsRow]
    cancel_blocked_step: Statement[IdRow]
    lock_reported_tasks: Statement[IdRow]
    set_ended_tasks_aside: Statement[IdRow]
    add_tasks: Statement[IdRow]
    move_redelivered_tasks: Statement[MoveRedeliveredTasksRow]
    begin_tasks: Statement[IdRow]
    start_tasks: Statement[IdRow]
    keep_tasks_alive: Statement[IdRow]
    end_tasks: Statement[EndTasksRow]
    quarantine_waiting_tasks: Statement[IdRow]
    confirm_sent_tasks: Statement[IdRow]
    count_tasks: Statement[CountTasksRow]
    judge_reported_tasks: Statement[JudgeReportedTasksRow]
    read_reporting_server: Statement[ReadReportingServerRow]
    lock_server: Statement[IdRow]
    claim_jobs: Statement[GivenAttempt]
    follow_clock: Statement[FollowClockRow]
    read_clock: Statement[ReadClockRow]
    find_torn_executions: Statement[IdRow]
    find_torn_jobs: Statement[FindTornJobsRow]
    find_torn_evaluations: Statement[IdRow]
    mend_execution: Statement[MendExecutionRow]
    mend_job: Statement[IdRow]
    submit_executions: Statement[SubmittedExecution]
    list_children_to_begin: Statement[ChildToBegin]
    record_worker_heartbeat: Statement[HeardWorker]
    record_plain_heartbeats: Statement[PlainlyHeardServer]
    lock_roots_of_held_steps: Statement[IdRow]
    end_forgotten_attempts: Statement[EndedAttempts]
    lock_root_of_job: Statement[IdRow]
    lock_job: Statement[LockedJob]
    cancel_job: Statement[IdRow]
    drop_checkpoint: Statement[IdRow]
    move_job: Statement[EndedAttempt]
    fail_job: Statement[EndedAttempt]
    ask_to_send_task: Statement[IdRow]
    resubmit_ended_job: Statement[ResubmitEndedJobRow]
    retire_servers: Statement[RetiredServer]
    note_empty_servers: Statement[IdRow]
    lock_roots: Statement[IdRow]
    propagate_ends: Statement[PropagatedEnd]
    recover_attempts: Statement[EndedAttempts]
    lock_jobs_of_superseded_reports: Statement[IdRow]
    store_superseded_reports: Statement[StoreSupersededReportsRow]
    find_consequential_attempts: Statement[IdRow]
    lock_reported_roots: Statement[IdRow]
    lock_reported_jobs: Statement[IdRow]
    start_attempts: Statement[IdRow]
    store_progress: Statement[IdRow]
    store_checkpoints: Statement[IdRow]
    store_log_lines: Statement[StoredLines]
    finish_attempts: Statement[EndedAttempt]
    read_retention_limits: Statement[RetentionLimits]
    scan_jobs: Statement[ScannedIds]
    lock_old_jobs: Statement[IdRow]
    delete_jobs: Statement[Deleted]
    scan_executions: Statement[ScannedIds]
    lock_old_executions: Statement[IdRow]
    list_steps: Statement[IdRow]
    delete_executions: Statement[Deleted]
    scan_servers: Statement[ScannedIds]
    delete_servers: Statement[Deleted]
    scan_slots: Statement[ScannedNumbers]
    delete_slots: Statement[Deleted]
    relax_guards: Statement[RelaxGuardsRow]
    make_servers: Statement[MakeServersRow]
    make_jobs: Statement[MakeJobsRow]
    read_figures: Statement[InstanceFigures]
    read_flags: Statement[FlaggedJob]
    read_placement: Statement[PlacementRow]
    read_log_page: Statement[WrittenLine]
    submit_jobs: Statement[SubmittedJob]
    end_overdue_attempts: Statement[EndedAttempts]
    expire_jobs: Statement[ExpiredJobs]
    fail_unmatched_jobs: Statement[UnmatchedJobs]
    list_stale_attempts: Statement[StaleAttempt]
    count_stale_attempts: Statement[CountStaleAttemptsRow]
    release_taken_attempts: Statement[ReleasedAttempt]
    find_due_triggers: Statement[DueTrigger]
