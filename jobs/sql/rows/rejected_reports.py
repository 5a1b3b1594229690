"""The rows of rejected_reports.sql. Written by `python -m controlplane.core.sql_rows`."""

from typing import NamedTuple


class StoreSupersededReportsRow(NamedTuple):
    id: int
