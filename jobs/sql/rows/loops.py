"""The rows of loops.sql. Written by `python -m controlplane.core.sql_rows`."""

from typing import NamedTuple
from uuid import UUID


class BegunLoop(NamedTuple):
    step: UUID
    execution: UUID
    child: UUID | None
    begins: UUID | None
    has_paths: bool


class StartedItem(NamedTuple):
    id: UUID
    needs_no_worker: bool
