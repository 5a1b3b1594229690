"""Types of responses about limits, queues and holds."""

from __future__ import annotations

from typing import Literal, TypedDict


class Limit(TypedDict):
    """Rule of a limit."""

    pattern: str
    namespace: str
    running: int | None
    starts: int | None
    per_seconds: float | None
    max_running: int | None
    max_waiting: int | None
    submissions_per_minute: int | None
    fair: bool | None
    weight: int | None
    note: str
    by: str
    created_at: str
    changed_at: str


class LimitKey(TypedDict):
    """Key in use. `used` and `allowed` count slots; `parked` counts jobs and executions."""

    key: str
    used: int
    allowed: int | None
    parked: int
    oldest_at: str | None


class LimitWithKeys(Limit):
    keys: list[LimitKey]


class Queue(TypedDict):
    """Jobs with the same namespace and required tags, and the number of workers that can take them."""

    namespace: str
    tags: list[str]
    waiting: int
    parked: int
    scheduled: int
    running: int
    oldest_at: str | None
    workers: int


class Hold(TypedDict):
    """Hold of work. `of` has one entry, and `parked` is the number of waiting jobs that it holds."""

    id: str
    of: dict[str, str]
    namespace: str | None
    mode: Literal["pause", "refuse"]
    note: str
    by: str
    created_at: str
    ends_at: str | None
    parked: int
