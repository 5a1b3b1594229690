"""The rows of propagation.sql. Written by `python -m controlplane.core.sql_rows`."""

from typing import NamedTuple
from uuid import UUID


class PropagatedEnd(NamedTuple):
    what: str
    id: UUID
    execution: UUID | None
    state: str | None
    is_limited: bool | None
