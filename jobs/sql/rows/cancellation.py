"""The rows of cancellation.sql. Written by `python -m controlplane.core.sql_rows`."""

from typing import NamedTuple
from uuid import UUID


class OverdueExecution(NamedTuple):
    id: UUID
    timeout_seconds: float


class HaltStepsRow(NamedTuple):
    execution: UUID
