"""The rows of execution_starts.sql. Written by `python -m controlplane.core.sql_rows`."""

from typing import NamedTuple
from uuid import UUID


class LimitKey(NamedTuple):
    key: str


class ExecutionToStart(NamedTuple):
    id: UUID
    namespace: str


class StartedExecution(NamedTuple):
    id: UUID
    has_started: bool
    has_moved: bool
    begins: list[UUID] | None
    has_paths: bool


class FreedSlotOfExecution(NamedTuple):
    id: int


class HeldKey(NamedTuple):
    key: str
