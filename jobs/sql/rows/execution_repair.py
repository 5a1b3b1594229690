"""The rows of execution_repair.sql. Written by `python -m controlplane.core.sql_rows`."""

from typing import NamedTuple
from uuid import UUID


class RepairRange(NamedTuple):
    until: UUID | None


class RepairStart(NamedTuple):
    since: UUID | None


class FindStalledJobsRow(NamedTuple):
    id: UUID
    child: UUID | None


class ResetExecutionRow(NamedTuple):
    id: UUID
    begins: UUID | None
