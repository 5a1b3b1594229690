"""The rows of hints.sql. Written by `python -m controlplane.core.sql_rows`."""

from typing import NamedTuple
from uuid import UUID


class ClaimableJobs(NamedTuple):
    namespace: str
    tags: list[str]
    refused_by: list[UUID]
    jobs: list[UUID]
    slots: int


class ServerOffer(NamedTuple):
    namespace: str
    tags: list[str]
    has_work: bool


class WorkerLoad(NamedTuple):
    server: UUID
    namespace: str
    tags: list[str]
    held: int
    slots: int
