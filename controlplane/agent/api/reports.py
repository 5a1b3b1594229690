"""Reports that an agent or a protected Celery worker creates itself, not the code of the job."""

from __future__ import annotations

from typing import Any

import structlog

from controlplane.agent.from_code.outcomes import failure_report
from controlplane.agent.limits import MESSAGE_LIMIT

log = structlog.get_logger()
FINAL_EVENTS = ("COMPLETED", "FAILED", "CANCELLED", "RELEASED")
KILL_PATIENCE = 2.0  # seconds from SIGTERM to SIGKILL


def timeout_report(seconds: float | None) -> dict[str, Any]:
    return failure_report("STEP_TIMEOUT", f"exceeded its timeout of {seconds:g} s")


def shrink_report(report: dict[str, Any], result: dict[str, Any]) -> dict[str, Any] | None:
    """Return a shorter report to replace one that was refused for its size.

    Return None if the report was refused for another reason, or cannot be shorter.
    """
    match result.get("code"):
        case "output_too_large":
            return failure_report("OUTPUT_TOO_LARGE", str(result.get("detail") or "the output is too large"))
        case "error_too_large" if report["error"]["traceback"] or len(report["error"]["message"]) > MESSAGE_LIMIT:
            return failure_report(report["error"]["code"], report["error"]["message"][:MESSAGE_LIMIT])
    return None


def log_refusal(report: dict[str, Any], result: dict[str, Any]) -> None:
    log.warning(
        "Report refused", attempt=report["attempt"], report=report["event"], code=result.get("code"),
        state=result.get("state"),
    )  # fmt: skip
