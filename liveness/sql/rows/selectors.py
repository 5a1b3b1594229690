"""The rows of selectors.sql. Written by `python -m controlplane.core.sql_rows`."""

from datetime import datetime
from typing import NamedTuple


class ServerFacets(NamedTuple):
    versions: str
    tags: list[str]
    namespaces: list[str]


class ListRowsLeftOutRow(NamedTuple):
    rows_left_out: str | None


class ListMaintenancesRow(NamedTuple):
    maintenances: str | None


class ReadEventsHorizonRow(NamedTuple):
    at: datetime


class OwnOutage(NamedTuple):
    began: datetime
    ended: datetime


class BeatOrOutage(NamedTuple):
    began: datetime
    ended: datetime | None
