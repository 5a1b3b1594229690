"""The rows of waits.sql. Written by `python -m controlplane.core.sql_rows`."""

from typing import NamedTuple
from uuid import UUID


class WaitingAnswer(NamedTuple):
    id: UUID
    message: str
