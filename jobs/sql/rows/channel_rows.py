"""The rows of channel_rows.sql. Written by `python -m controlplane.core.sql_rows`."""

from typing import NamedTuple


class LockedChannels(NamedTuple):
    locked: bool
