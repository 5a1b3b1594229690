"""One attempt that is a task: what the heart knows of it, the message that is sent of it, and what it handed back."""

from __future__ import annotations

import contextlib
import enum
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from controlplane.agent.limits import PAYLOAD_IN_ENVIRONMENT, RESULT_KEPT
from controlplane.agent.outcomes import failure_report, report_of
from controlplane.agent.pulse import SILENT_AFTER

log = structlog.get_logger()


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
    sign: int = 0  # its last sign of life: when its file of them was last changed, by another clock than ours
    sign_at: float = 0.0
    is_silent: bool = False

    @property
    def is_before_code(self) -> bool:
        return self.stage in (Stage.SENT, Stage.STARTING)

    def look_for_signs(self, file: str, now: float) -> None:
        """Whether its code hangs, or was stopped: where it gives signs of life, it goes on to do so."""
        try:
            sign = os.stat(file).st_mtime_ns
        except OSError:
            sign = 0
        if not sign or sign != self.sign:
            self.sign, self.sign_at = sign, now
        if self.is_silent != (now - self.sign_at > SILENT_AFTER):
            self.is_silent = not self.is_silent
            if self.is_silent:
                log.warning("No sign of life of a job's code", attempt=self.id, pid=self.pid)
            else:
                log.info("A job's code gives signs of life again", attempt=self.id, pid=self.pid)


def pulse_of(path: str | Path) -> str:
    """The file of the signs of life of the task whose result goes to `path`."""
    return f"{path}.pulse"


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
