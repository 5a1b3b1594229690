"""The rows of restoration.sql. Written by `python -m controlplane.core.sql_rows`."""

from typing import NamedTuple


class MoveClockRow(NamedTuple):
    tick: int
