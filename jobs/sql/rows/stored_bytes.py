"""The rows of stored_bytes.sql. Written by `python -m controlplane.core.sql_rows`."""

from typing import NamedTuple
from uuid import UUID


class HeldSums(NamedTuple):
    held: bool


class AddedUp(NamedTuple):
    rows: int


class StoredSum(NamedTuple):
    bytes: int


class StoredOfOwner(NamedTuple):
    id: UUID
    name: str
    bytes: int


class StoredWithCopy(NamedTuple):
    stored: int
