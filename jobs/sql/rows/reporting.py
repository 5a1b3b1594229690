"""The rows of reporting.sql. Written by `python -m controlplane.core.sql_rows`."""

from typing import NamedTuple


class StoredLines(NamedTuple):
    place: int
    state: str
