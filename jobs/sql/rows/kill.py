"""The rows of kill.sql. Written by `python -m controlplane.core.sql_rows`."""

from typing import NamedTuple
from uuid import UUID


class JobsToKill(NamedTuple):
    waiting: int
    running: int
    newest: UUID | None
