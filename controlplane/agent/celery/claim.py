"""One attempt that is a task: what the heart knows of it, the message that is sent of it, and what it handed back."""

from __future__ import annotations

import contextlib
import enum
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controlplane.agent.limits import PAYLOAD_IN_ENVIRONMENT, RESULT_KEPT
from controlplane.agent.outcomes import failure_report, report_of


class Stage(enum.Enum):
    SENT = "SENT"  # on its way through the queue: CLAIMED for the control plane
    STARTING = "STARTING"  # its turn has come, STARTED is not answered
    RUNNING = "RUNNING"
    ENDED = "ENDED"  # reported, and not answered yet


@dataclass
class Claim:
    """An attempt, which is a task of the same id."""

    id: str
    timeout: float | None
    since: float
    stage: Stage = Stage.SENT
    tag: str | None = None  # of the message that this worker has; None: it is on its way
    pid: int | None = None
    has_begun: bool = False  # its code, some time
    times_out_at: float | None = None
    stops_until: float | None = None  # its code is being ended, by then with SIGKILL
    verdict: dict[str, Any] | None = None  # what is reported then; None: nothing, for it is not ours any more
    is_revoked: bool = False

    @property
    def is_before_code(self) -> bool:
        return self.stage in (Stage.SENT, Stage.STARTING)


def message_of(item: dict[str, Any]) -> dict[str, Any]:
    """What the worker's main process needs to send the task of a claimed attempt."""
    job, action = item["job"], item["job"]["action"]
    about = {name: job.get(name) for name in ("id", "execution", "step")} | {"attempt": item["number"]}
    if len(json.dumps(payload := job.get("payload"))) < PAYLOAD_IN_ENVIRONMENT:
        about["payload"] = payload
    headers = {"job": about, "traceparent": job.get("traceparent")}
    return {
        "attempt": str(item["id"]),
        "task": action["task"],
        "args": action.get("args") or [],
        "kwargs": action.get("kwargs") or {},
        "timeout": job.get("timeout_seconds"),
        "headers": {name: value for name, value in headers.items() if value is not None},
    }


def read_result(file: Path, outcome: str, text: str | None) -> dict[str, Any]:
    """The report of a task that ended: what it handed back in `file`, else what its worker says of it."""
    if outcome == "REVOKED":
        return failure_report("REVOKED", "the task was revoked in Celery")
    with contextlib.suppress(OSError), file.open("rb") as opened:
        if report := report_of(opened.read(RESULT_KEPT + 1)):
            return report
    code, _, message = (text or "NO_RESULT: the task ended without a result").partition(": ")
    return failure_report(code, message)
