"""The rows of registration.sql. Written by `python -m controlplane.core.sql_rows`."""

from typing import NamedTuple
from uuid import UUID


class RegistrationRow(NamedTuple):
    id: UUID
    token_id: UUID
    token_version: int
    type: str
    name: str
    cluster: str
    state: str
    heartbeat_interval: float
    timeout: float
    termination_grace_period: float
    worker_task_restart_strategy: str
    fence_after: float | None
    is_new: bool
