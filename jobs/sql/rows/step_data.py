"""The rows of step_data.sql. Written by `python -m controlplane.core.sql_rows`."""

from typing import NamedTuple
from uuid import UUID


class ReadPathsRow(NamedTuple):
    path: str
    canonical: str | None


class ResolvedStep(NamedTuple):
    id: UUID
    execution: UUID
    state: str
    needs_no_worker: bool
    is_loop: bool


class SlowStep(NamedTuple):
    id: UUID
    execution: UUID
    state: str
    needs_no_worker: bool
    is_loop: bool
