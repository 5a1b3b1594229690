"""The rows of liveness_check.sql. Written by `python -m controlplane.core.sql_rows`."""

from typing import NamedTuple
from uuid import UUID


class RetiredServer(NamedTuple):
    id: UUID
    name: str
    reason: str


class NoteEmptyServersRow(NamedTuple):
    servers: int
