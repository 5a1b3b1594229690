"""The rows of timetable.sql. Written by `python -m controlplane.core.sql_rows`."""

from typing import NamedTuple


class BeginTaskRow(NamedTuple):
    task: str
