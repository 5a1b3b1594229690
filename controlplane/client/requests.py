"""Types of request fields. `GET /api/docs` explains each field."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypedDict
from uuid import UUID

Action = Mapping[str, Any]
"""Action to run, such as `{"type": "script", "command": "date"}` or `{"type": "callable", "path":
"package.module:f"}`."""


class JobOptions(TypedDict, total=False):
    """Options of a job besides its action and payload. Times have a time zone."""

    tags: list[str]
    priority: int
    timeout_seconds: float | None
    available_at: datetime.datetime | str
    good_until: datetime.datetime | str | None
    deadline_seconds: float | None
    on_deadline: Literal["flag", "cancel"]
    notify: list[dict[str, Any]]
    on_worker_lost: Literal["RESUBMIT", "FAIL"]
    unmatched: Literal["fail", "wait"]
    max_retries: int
    retry_delay_seconds: float
    retry_backoff: Literal["fixed", "exponential"]
    retry_on: list[str] | None
    isolation: Literal["process"] | None
    worker_slots: int
    limits: list[str] | Mapping[str, int]
    require_worker: bool
    key: str
    unique: Mapping[str, Any]
    name: str
    traceparent: str | None


class ChangedFields(TypedDict, total=False):
    """Fields of a waiting job that can be changed. `available_at` None means now."""

    priority: int
    available_at: datetime.datetime | str | None
    tags: list[str]
    timeout_seconds: float | None
    max_retries: int
    payload: Any
    limits: list[str] | Mapping[str, int]


class ExecutionOptions(TypedDict, total=False):
    """Options of an execution besides its name and steps."""

    on_error: list[dict[str, Any]]
    on_success: list[dict[str, Any]]
    on_complete: list[dict[str, Any]]
    sealed: bool
    timeout_seconds: float | None
    deadline_seconds: float | None
    on_deadline: Literal["flag", "cancel"]
    notify: list[dict[str, Any]]
    inputs: dict[str, Any]
    outputs: dict[str, Any]
    limits: list[str] | Mapping[str, int]
    require_worker: bool
    key: str


class BatchOptions(TypedDict, total=False):
    """Options of bulk actions.

    resubmit_job takes `keep_checkpoint` and `force`, fail_job takes `reason`, change_job takes `changes`, drain_server
    takes `deadline_seconds` and `duration_seconds`, cordon_server takes `duration_seconds`.
    """

    keep_checkpoint: bool
    force: bool
    reason: str
    changes: ChangedFields
    deadline_seconds: float
    duration_seconds: float


class Identified(TypedDict):
    """Response with an id, such as a job."""

    id: str


Reference = str | UUID | Identified
"""Job, execution, server or trigger: the response with it, or its id."""


def id_of(reference: Reference) -> str:
    """Return the id of a reference. Raise ValueError if it is not a UUID, because the id becomes part of a URL."""
    text = str(reference if isinstance(reference, str | UUID) else reference["id"])
    try:
        return str(UUID(text))
    except ValueError:
        raise ValueError(f"{text!r} is not an id: ids look like 01890a5d-ac96-774b-bcce-b302099a8057") from None


def dump_json(body: Any) -> bytes:
    """Return a body as JSON. Times and ids get the form that the API reads. Raise TypeError for other objects."""
    return json.dumps(body, default=_jsonable, allow_nan=False).encode()


def _jsonable(value: Any) -> Any:
    match value:
        case datetime.datetime():
            if value.tzinfo is None:
                raise TypeError(f"{value!r} has no time zone: give it one, like datetime.now(timezone.utc)")
            return value.isoformat()
        case UUID():
            return str(value)
        case Mapping():
            return dict(value)
        case Iterable():
            return list(value)
    raise TypeError(f"{value!r} cannot be written as JSON")
