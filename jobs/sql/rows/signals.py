"""The rows of signals.sql. Written by `python -m controlplane.core.sql_rows`."""

from datetime import datetime
from typing import NamedTuple
from uuid import UUID


class StoredSignal(NamedTuple):
    id: UUID
    name: str
    created_at: datetime
