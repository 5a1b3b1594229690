"""Types of the control plane's responses. They are JSON objects, and a later control plane may add fields."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from controlplane.client.answer_parts import DeadlineFields, ServerName, Wait
from controlplane.client.loop_answers import LoopFields, Progress

JobState = Literal[
    "BLOCKED", "PENDING", "CLAIMED", "RUNNING", "COMPLETED", "FAILED", "CANCELLED", "SKIPPED", "EXPIRED"
]  # fmt: skip
ExecutionState = Literal["RUNNING", "CANCELLING", "COMPLETED", "FAILED", "CANCELLED"]


class Attempt(TypedDict):
    id: str
    number: int
    server: ServerName
    state: str
    claimed_at: str
    started_at: str | None
    finished_at: str | None
    heartbeat_at: str | None
    progress: float | None
    message: str
    error: Any
    left_out: list[str]


class TimelineEntry(TypedDict):
    attempt: int | None
    state: str
    at: str
    server: ServerName | None
    reason: str


class SentSignal(TypedDict):
    id: str
    name: str
    created_at: str


class Job(DeadlineFields):
    """Job. It has ended when `finished_at` is not None.

    In a list, `left_out` names the fields that are left out because they are too large.
    """

    id: str
    name: str
    namespace: str
    kind: str
    state: JobState
    flags: list[str]
    notify: list[dict[str, Any]] | None
    action: dict[str, Any]
    payload: Any
    payload_from: dict[str, str] | None
    tags: list[str]
    required_tags: list[str]
    priority: int
    timeout_seconds: float | None
    on_worker_lost: str
    unmatched: str
    max_retries: int
    retry_delay_seconds: float
    retry_backoff: str
    retry_on: list[str] | None
    isolation: str | None
    limits: dict[str, int]
    worker_slots: int
    parked_by: dict[str, str] | None
    resubmissions: int
    retries: int
    resubmission_of: str | None
    resubmitted_as: str | None
    cancel_requested_at: str | None
    execution: str | None
    step: str | None
    child: str | None
    waiting_for: Wait | None
    key: str | None
    output: Any
    error: Any
    checkpoint: Any
    checkpoint_at: str | None
    traceparent: str | None
    created_at: str
    available_at: str
    good_until: str | None
    finished_at: str | None
    attempts: list[Attempt]
    timeline: list[TimelineEntry]
    late_reports: list[dict[str, Any]]
    left_out: list[str]


class NewJob(Job):
    """Job in the response to its submission. `duplicate` is True if a job with the same unique key already existed."""

    duplicate: bool


class LogLine(TypedDict):
    at: str
    attempt: int
    stream: str
    line: str


class ExecutionEvent(TypedDict):
    at: str
    code: str
    step: str | None
    server: str | None
    line: str


class Step(LoopFields):
    key: str
    job: str
    state: JobState
    action: dict[str, Any]
    depends_on: list[str]
    continue_on_failure: bool
    child: str | None
    server: ServerName | None
    attempt_count: int
    resubmissions: int
    retries: int
    when: str | None
    run_if_skipped: bool
    kept: bool
    restart_of: str | None
    waiting_for: Wait | None
    output: Any
    error: Any
    left_out: list[str]
    available_at: str
    finished_at: str | None


class ExecutionFields(DeadlineFields):
    id: str
    name: str
    namespace: str
    state: ExecutionState
    flags: list[str]
    notify: list[dict[str, Any]] | None
    sealed: bool
    progress: Progress
    key: str | None
    timeout_seconds: float | None
    error: Any
    parent: dict[str, Any] | None
    trigger: str | None
    rerun_of: str | None
    limits: dict[str, int]
    parked_by: dict[str, str] | None
    cancel_requested_at: str | None
    created_at: str
    finished_at: str | None


class ExecutionSummary(ExecutionFields):
    """Execution in a list, with the number of its steps in each state."""

    steps: dict[str, int]


class Execution(ExecutionFields):
    """Execution. It has ended when `finished_at` is not None."""

    steps: list[Step]
    on_error: list[Step]
    on_success: list[Step]
    on_complete: list[Step]
    inputs: dict[str, Any]
    outputs: Any


class Server(TypedDict):
    id: str
    type: str
    own: bool
    name: str
    namespace: str
    cluster: str
    hostname: str
    pid: int | None
    version: str
    tags: list[str]
    max_concurrent: int
    used_slots: int
    state: str
    fresh: bool
    cordoned: bool
    cordon_until: str | None
    drain: dict[str, Any] | None
    config: dict[str, Any]
    metrics: dict[str, Any]
    created_at: str
    state_changed_at: str
    last_heartbeat_at: str | None
    next_transition: dict[str, Any] | None
    attempts: list[dict[str, Any]]


class Trigger(TypedDict):
    id: str
    name: str
    namespace: str
    cron: str | None
    interval_seconds: float | None
    on_signal: str | None
    timezone: str
    start_at: str | None
    end_at: str | None
    jitter_seconds: float
    action: dict[str, Any] | None
    payload: Any
    tags: list[str]
    priority: int
    worker_slots: int
    timeout_seconds: float
    max_retries: int
    enabled: bool
    missed: str
    overlap: str
    pause_after_failures: int | None
    failures_in_row: int
    execution: dict[str, Any]
    next_slot_at: str | None
    created_at: str
    slots: list[dict[str, Any]]
