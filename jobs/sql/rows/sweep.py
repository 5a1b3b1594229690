"""The rows of sweep.sql. Written by `python -m controlplane.core.sql_rows`."""

from datetime import datetime
from typing import NamedTuple
from uuid import UUID


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
    job_name: str
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
