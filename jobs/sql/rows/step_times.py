"""The rows of step_times.sql. Written by `python -m controlplane.core.sql_rows`."""

from datetime import datetime
from typing import NamedTuple
from uuid import UUID


class StepTimes(NamedTuple):
    job: UUID
    step: str
    state: str
    position: int
    is_hook: bool
    is_kept: bool
    free_at: datetime
    begun_at: datetime | None
    finished_at: datetime | None
    server_state: str | None
    family: str
    steps: int
    place: int | None


class FamilyNeeds(NamedTuple):
    box: str
    needs: list[str]
