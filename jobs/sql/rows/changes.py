"""The rows of changes.sql. Written by `python -m controlplane.core.sql_rows`."""

from typing import NamedTuple


class CountedTagSets(NamedTuple):
    tag_sets: int
