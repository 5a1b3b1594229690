"""The rows of quotas.sql. Written by `python -m controlplane.core.sql_rows`."""

from typing import NamedTuple


class LockedQuotas(NamedTuple):
    locked: bool


class SpentQuota(NamedTuple):
    max_waiting: int | None
    waiting: int
    submissions_per_minute: int | None
    left_over: float | None
