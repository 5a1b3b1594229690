"""The rows of followed_jobs.sql. Written by `python -m controlplane.core.sql_rows`."""

from typing import NamedTuple


class ChangedJob(NamedTuple):
    place: int
