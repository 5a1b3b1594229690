"""The rows of fair_turns.sql. Written by `python -m controlplane.core.sql_rows`."""

from typing import NamedTuple


class DropPastTurnsRow(NamedTuple):
    key: str
