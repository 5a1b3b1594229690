"""The rows of retention.sql. Written by `python -m controlplane.core.sql_rows`."""

from typing import NamedTuple


class NoteRowLeftOutRow(NamedTuple):
    pass


class AllowEventDeletionRow(NamedTuple):
    set_config: str


class ScannedRange(NamedTuple):
    last: int | None
    due: int
    has_old: bool


class DeletedRecords(NamedTuple):
    deleted: int


class ForbidEventDeletionRow(NamedTuple):
    set_config: str
