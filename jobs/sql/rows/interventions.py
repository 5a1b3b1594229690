"""The rows of interventions.sql. Written by `python -m controlplane.core.sql_rows`."""

from typing import NamedTuple
from uuid import UUID


class LockedJob(NamedTuple):
    job: UUID
    state: str
    is_cancelling: bool
    execution: UUID | None
    is_step: bool
    kind: str
    is_held: bool
    is_execution: bool
    is_waiting: bool
    is_quarantined: bool
    is_resubmitted: bool
    is_limited: bool
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
    is_limited: bool


class ResubmitEndedJobRow(NamedTuple):
    id: UUID
    is_execution: bool
