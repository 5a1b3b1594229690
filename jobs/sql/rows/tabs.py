"""The rows of tabs.sql. Written by `python -m controlplane.core.sql_rows`."""

from typing import NamedTuple


class TabCount(NamedTuple):
    sort: str
    found: int
    is_full: bool


class NamespaceRow(NamedTuple):
    namespace: str
