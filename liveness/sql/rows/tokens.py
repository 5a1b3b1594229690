"""The rows of tokens.sql. Written by `python -m controlplane.core.sql_rows`."""

from datetime import datetime
from typing import NamedTuple
from uuid import UUID


class FoundToken(NamedTuple):
    id: UUID
    name: str
    role: str
    prefix: str
    namespace: str
    types: list[str] | None
    tags: list[str] | None
    cluster: str | None
    max_servers: int | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    is_expired: bool
