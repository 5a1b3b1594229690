"""The rows of deadlines.sql. Written by `python -m controlplane.core.sql_rows`."""

from typing import NamedTuple
from uuid import UUID


class SweptJobs(NamedTuple):
    state: str
    jobs: int
    executions: list[UUID] | None
    evaluations: list[UUID] | None
    listed: list[UUID]


class ExecutionPastDeadline(NamedTuple):
    id: UUID
    message: str


class MissedDeadlines(NamedTuple):
    kind: str
    number: int
    ids: list[str]
    named: str
