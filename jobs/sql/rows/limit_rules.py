"""The rows of limit_rules.sql. Written by `python -m controlplane.core.sql_rows`."""

from typing import NamedTuple


class LockedRules(NamedTuple):
    locked: bool


class CountedSlots(NamedTuple):
    slots: int
