"""The rows of unique_jobs.sql. Written by `python -m controlplane.core.sql_rows`."""

from typing import NamedTuple


class LockedKeys(NamedTuple):
    locked: int
