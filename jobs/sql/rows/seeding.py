"""The rows of seeding.sql. Written by `python -m controlplane.core.sql_rows`."""

from typing import NamedTuple
from uuid import UUID


class RelaxGuardsRow(NamedTuple):
    set_config: str


class MakeServersRow(NamedTuple):
    id: UUID
    works: bool


class MakeJobsRow(NamedTuple):
    jobs: int
