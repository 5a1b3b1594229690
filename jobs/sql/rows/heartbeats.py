"""The rows of heartbeats.sql. Written by `python -m controlplane.core.sql_rows`."""

from datetime import datetime
from typing import NamedTuple
from uuid import UUID


class RecordedHeartbeat(NamedTuple):
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
    held_queues: list[str]
    tags: list[str]
    max_concurrent: int
    dump: list[UUID]


class RecordedPlainHeartbeat(NamedTuple):
    id: UUID
    token_version: int
    state: str
    heartbeat_interval: float
    cordoned_by: str | None
    fence_after: float | None
    drain_deadline: datetime | None
    maintenance: bool
    cancel: list[UUID]
    tags: list[str]
    max_concurrent: int
    dump: list[UUID]


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
    is_limited: bool
