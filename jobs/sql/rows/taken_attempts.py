"""The rows of taken_attempts.sql. Written by `python -m controlplane.core.sql_rows`."""

from typing import NamedTuple
from uuid import UUID


class ReleasedAttempt(NamedTuple):
    attempt: UUID
    job: UUID
    server: UUID
    name: str
    disobeys: bool
