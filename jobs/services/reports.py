"""Reports of workers on their attempts, and the result of each report."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from uuid import UUID

from controlplane.agent.limits import CHECKPOINT_LIMIT, SIZE_LIMIT
from controlplane.core.json_bodies import size_of


class ReportEvent(StrEnum):
    STARTED = "STARTED"
    PROGRESS = "PROGRESS"
    CHECKPOINT = "CHECKPOINT"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    RELEASED = "RELEASED"
    LOG = "LOG"
    STACK = "STACK"


ENDS = {ReportEvent.COMPLETED, ReportEvent.FAILED, ReportEvent.CANCELLED, ReportEvent.RELEASED}


@dataclass(frozen=True)
class Report:
    """Report of one event of an attempt."""

    attempt: UUID
    event: ReportEvent
    output: Any = None
    error: dict[str, Any] | None = None
    reason: str | None = None
    begun: bool | None = None
    progress: float | None = None
    message: str | None = None
    value: Any = None
    stream: str | None = None
    lines: list[str] | None = None
    sequence: int | None = None
    traceparent: str | None = None
    text: str | None = None


@dataclass(frozen=True)
class Result:
    """Result of a report: accepted (`replayed` if it had been applied before), or refused with a code."""

    attempt: UUID
    accepted: bool
    replayed: bool
    state: str | None
    code: str | None = None
    detail: str | None = None


def explain_oversize(report: Report) -> tuple[str, str] | None:
    """Return the code and the detail with which a report is refused for its size, or None if it is small enough."""
    for name, content, limit in (
        ("output", report.output, SIZE_LIMIT),
        ("error", report.error, SIZE_LIMIT),
        ("checkpoint", report.value, CHECKPOINT_LIMIT),
    ):
        if content is not None and (size := size_of(content)) > limit:
            return f"{name}_too_large", f"The {name} has {size} bytes of JSON; the limit is {limit}."
    return None
