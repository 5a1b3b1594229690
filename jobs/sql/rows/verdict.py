"""The rows of verdict.sql. Written by `python -m controlplane.core.sql_rows`."""

from typing import NamedTuple


class Incidents(NamedTuple):
    failed_lately: int
    failed_before: int
    quarantined: int
    incident: str | None
    last_worker: str | None


class ClusterFigures(NamedTuple):
    counts: str | None
    waiting: float | None
    held_by_lost_server: int
