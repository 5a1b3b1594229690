"""The rows of alerts.sql. Written by `python -m controlplane.core.sql_rows`."""

from datetime import datetime
from typing import NamedTuple
from uuid import UUID


class AlertFact(NamedTuple):
    rule: str
    cluster: str
    number: int
    names: list[str]
    servers: str | None
    losses: list[str]


class StuckJobs(NamedTuple):
    flag: str
    number: int
    ids: list[str]
    jobs: str


class QuarantinedJob(NamedTuple):
    id: UUID
    name: str


class NotedIncidents(NamedTuple):
    opened: int
    ended: int
    messages: int
    announced: list[UUID]
    updated: list[UUID]


class LeasedMessage(NamedTuple):
    id: UUID
    event: str
    channel: str
    payload: str
    tries: int
    created_at: datetime
    url: str | None
    token: UUID | None


class NotedDelivery(NamedTuple):
    sent_at: datetime | None
    next_try_at: datetime | None


class AddedChannels(NamedTuple):
    now: datetime
    channels: str


class MutedAlerts(NamedTuple):
    until: datetime
