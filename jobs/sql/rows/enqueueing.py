"""The rows of enqueueing.sql. Written by `python -m controlplane.core.sql_rows`."""

from typing import NamedTuple
from uuid import UUID


class EnqueuedJob(NamedTuple):
    id: UUID
    is_parked: bool
