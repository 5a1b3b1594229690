"""The rows of celery_tasks.sql. Written by `python -m controlplane.core.sql_rows`."""

from typing import NamedTuple
from uuid import UUID


class MoveRedeliveredTasksRow(NamedTuple):
    attempt: UUID
    job: UUID
    server: UUID
    attempt_state: str
    job_state: str
    reason: str
    execution: UUID
    kind: str
    is_limited: bool


class EndTasksRow(NamedTuple):
    attempt: UUID
    job: UUID
    server: UUID
    attempt_state: str
    job_state: str
    reason: str
    execution: UUID
    kind: str
    is_limited: bool


class CountTasksRow(NamedTuple):
    name: str


class JudgeReportedTasksRow(NamedTuple):
    attempt: UUID
    verdict: str


class ReadReportingServerRow(NamedTuple):
    has_ended: bool
    token_version: int
