"""The rows of server_history.sql. Written by `python -m controlplane.core.sql_rows`."""

from typing import NamedTuple


class ServerStep(NamedTuple):
    place: int
    completed: int | None
    failed: int | None
    others: int | None
    slots_used: float | None
    longest_gap: float | None
    cpu_average: float | None
    cpu_highest: int | None
    memory_average: float | None
    memory_highest: int | None
