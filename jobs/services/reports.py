"""What a worker may say of an attempt, and what becomes of it."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from uuid import UUID

import orjson

from controlplane.agent.limits import CHECKPOINT_LIMIT, SIZE_LIMIT


class Event(StrEnum):
    STARTED = "STARTED"
    PROGRESS = "PROGRESS"
    CHECKPOINT = "CHECKPOINT"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    RELEASED = "RELEASED"
    LOG = "LOG"


ENDS = {Event.COMPLETED, Event.FAILED, Event.CANCELLED, Event.RELEASED}


@dataclass(frozen=True)
class Report:
    """One event of one attempt."""

    attempt: UUID
    event: Event
    output: Any = None
    error: dict[str, Any] | None = None
    reason: str | None = None
    progress: float | None = None
    message: str | None = None
    value: Any = None
    stream: str | None = None
    lines: list[str] | None = None
    sequence: int | None = None
    traceparent: str | None = None


@dataclass(frozen=True)
class Result:
    """What became of a report: accepted (replayed: it had been before), or refused with a code."""

    attempt: UUID
    accepted: bool
    replayed: bool
    state: str | None
    code: str | None = None
    detail: str | None = None


def explain_oversize(report: Report) -> tuple[str, str] | None:
    """The code and the sentence with which a report is refused for its size."""
    for name, content, limit in (
        ("output", report.output, SIZE_LIMIT),
        ("error", report.error, SIZE_LIMIT),
        ("checkpoint", report.value, CHECKPOINT_LIMIT),
    ):
        if content is not None and (size := len(orjson.dumps(content))) > limit:
            return f"{name}_too_large", f"The {name} has {size} bytes of JSON; the limit is {limit}."
    return None
