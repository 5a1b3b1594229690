"""The rows of server_history.sql. Written by `python -m controlplane.core.sql_rows`."""

from typing import NamedTuple


class ServerStep(NamedTuple):
    place: int
    completed: int | None
    failed: int | None
    others: int | None
    slots_used: float | None
    longest_gap: float | None
