"""The rows of open_executions.sql. Written by `python -m controlplane.core.sql_rows`."""

from typing import NamedTuple
from uuid import UUID


class StepBefore(NamedTuple):
    step: str
    type: str
    needs: list[str]


class AddedStep(NamedTuple):
    id: UUID
    begins: bool
    is_barred: bool
    cause: str | None
    has_paths: bool
    missing_worker: str | None
    waiting: int
    tag_sets: int
    stored: int
    without_worker: str | None
    has_quota: bool
