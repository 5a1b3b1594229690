"""Parts that several of the control plane's responses have."""

from __future__ import annotations

from typing import Any, TypedDict


class ServerName(TypedDict):
    id: str
    name: str


class Wait(TypedDict):
    """Event that a step waits for without a worker."""

    what: str
    until: str | None
    signal: str | None
    message: str | None
    choices: list[str] | None
    fields: dict[str, Any] | None
    group: str | None


class DeadlineFields(TypedDict):
    """Deadline of a job or an execution. All fields are None if it has none."""

    deadline_seconds: float | None
    on_deadline: str | None
    deadline_at: str | None


class Notification(TypedDict):
    """Notification of the end of a job or an execution. `state` is waiting, sent or given_up."""

    id: str
    type: str
    url: str
    state: str
    tries: int
    error: str
    job: str | None
    execution: str | None
    created_at: str
    next_try_at: str | None
    sent_at: str | None
