"""The rows of claiming.sql. Written by `python -m controlplane.core.sql_rows`."""

from typing import NamedTuple
from uuid import UUID


class ClaimedAttempt(NamedTuple):
    server: UUID | None
    obstacle: str | None
    id: UUID | None
    number: int
    job: UUID
    kind: str
    action: str
    payload: str | None
    payload_from: str | None
    timeout_seconds: float | None
    execution: UUID | None
    step: str | None
    checkpoint: str | None
    traceparent: str | None
    former_traceparent: str | None
    isolation: str | None
    worker_slots: int | None
    seen: str | None
    parked: int
    slots_wanted: int | None
