"""The rows of submission.sql. Written by `python -m controlplane.core.sql_rows`."""

from typing import NamedTuple
from uuid import UUID


class SubmittedJob(NamedTuple):
    place: int
    id: UUID
    missing_worker: str | None
    is_execution: bool
    waiting: int
