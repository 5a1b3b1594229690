"""The rows of sign_ins.sql. Written by `python -m controlplane.core.sql_rows`."""

from typing import NamedTuple


class LockSignInsOfAddressRow(NamedTuple):
    pg_advisory_xact_lock: str


class CountSignInRow(NamedTuple):
    seconds: float
