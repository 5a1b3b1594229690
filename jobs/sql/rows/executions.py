"""The rows of executions.sql. Written by `python -m controlplane.core.sql_rows`."""

from typing import NamedTuple
from uuid import UUID


class SubmittedExecution(NamedTuple):
    place: int
    execution: UUID
    begins: UUID | None
    missing_worker: str | None
    waiting: int
    tag_sets: int
    stored: int
    without_worker: str | None
    has_quota: bool


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
    repeats: UUID | None
