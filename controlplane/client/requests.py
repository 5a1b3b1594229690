"""What may be said of a job that is submitted; `GET /api/docs` tells each."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypedDict
from uuid import UUID

Action = Mapping[str, Any]
"""What to run, like `{"type": "script", "command": "date"}` or `{"type": "callable", "path": "package.module:f"}`."""


class JobOptions(TypedDict, total=False):
    """Of a job, beside its action and its payload. Times have a time zone."""

    tags: list[str]
    priority: int
    timeout_seconds: float | None
    available_at: datetime.datetime | str
    good_until: datetime.datetime | str | None
    on_worker_lost: Literal["RESUBMIT", "FAIL"]
    unmatched: Literal["fail", "wait"]
    max_retries: int
    retry_delay_seconds: float
    retry_backoff: Literal["fixed", "exponential"]
    retry_on: list[str] | None
    require_worker: bool
    key: str
    name: str
    traceparent: str | None


class ExecutionOptions(TypedDict, total=False):
    """Of an execution, beside its name and its steps."""

    on_error: list[dict[str, Any]]
    timeout_seconds: float | None
    inputs: dict[str, Any]
    require_worker: bool
    key: str


class BatchOptions(TypedDict, total=False):
    """Of an action on many, beside what it is: `keep_checkpoint` and `force` of resubmit_job, `reason` of fail_job,
    `deadline_seconds` of drain_server, `duration_seconds` of that and of cordon_server."""

    keep_checkpoint: bool
    force: bool
    reason: str
    deadline_seconds: float
    duration_seconds: float


class Identified(TypedDict):
    """An answer with an id, like a job."""

    id: str


Reference = str | UUID | Identified
"""A job, an execution, a server or a trigger: as it was answered, or its id."""


def id_of(reference: Reference) -> str:
    """Raises ValueError where it is no id: nothing else becomes part of an address."""
    text = str(reference if isinstance(reference, str | UUID) else reference["id"])
    try:
        return str(UUID(text))
    except ValueError:
        raise ValueError(f"{text!r} is no id: ids are like 01890a5d-ac96-774b-bcce-b302099a8057") from None


def dump_json(body: Any) -> bytes:
    """JSON, with times and ids as the API reads them. Raises TypeError for what has no JSON."""
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
