"""Claimed attempt that runs as a Celery task: its state in the heart, its message, and its result."""

from __future__ import annotations

import contextlib
import enum
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from controlplane.agent.celery.messages import SendJob
from controlplane.agent.from_code.outcomes import failure_report, report_of
from controlplane.agent.from_code.pulse import SILENT_AFTER
from controlplane.agent.limits import PAYLOAD_IN_ENVIRONMENT, RESULT_KEPT

log = structlog.get_logger()


class Stage(enum.Enum):
    SENT = "SENT"  # it is in the worker's own queue; the control plane has it as CLAIMED
    STARTING = "STARTING"  # the worker received it; the report STARTED is not answered yet
    RUNNING = "RUNNING"
    ENDED = "ENDED"  # its final report is not answered yet


@dataclass
class Claim:
    """An attempt. Its task has the same id. Times are in seconds on the clock of the claims."""

    id: str
    timeout: float | None
    since: float
    slots: int = 1
    stage: Stage = Stage.SENT
    tag: str | None = None  # of its delivery; None if the worker has not received it
    pid: int | None = None
    has_begun: bool = False  # its code has run, in this try or an earlier one
    times_out_at: float | None = None
    stops_until: float | None = None  # its code is being stopped; after this time by SIGKILL
    verdict: dict[str, Any] | None = None  # the report to send then; None if the attempt belongs to another server
    is_revoked: bool = False
    sign: int = 0  # its latest sign of life: the modification time of the file, on another clock
    sign_at: float = 0.0
    is_silent: bool = False

    @property
    def is_before_code(self) -> bool:
        return self.stage in (Stage.SENT, Stage.STARTING)

    def look_for_signs(self, file: str, now: float) -> None:
        """Set `is_silent` if the code gave signs of life earlier and gives none now.

        It hangs, or its process is stopped.
        """
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


def send_order(item: dict[str, Any]) -> SendJob:
    """Return the order for the worker to send the task of a claimed attempt."""
    job, action = item["job"], item["job"]["action"]
    about = {name: job.get(name) for name in ("id", "execution", "step")} | {"attempt": item["number"]}
    if len(json.dumps(payload := job.get("payload"))) < PAYLOAD_IN_ENVIRONMENT:
        about["payload"] = payload
    headers = {"job": about, "traceparent": job.get("traceparent")}
    return SendJob(
        attempt=str(item["id"]),
        task=action["task"],
        args=action.get("args") or [],
        kwargs=action.get("kwargs") or {},
        timeout=job.get("timeout_seconds"),
        headers={name: value for name, value in headers.items() if value is not None},
    )


def read_result(file: Path, outcome: str, text: str | None) -> dict[str, Any]:
    """Return the report of a task that ended.

    It has the result in `file`; without a file, the `text` from the worker.
    """
    if outcome == "REVOKED":
        return failure_report("REVOKED", "the task was revoked in Celery")
    with contextlib.suppress(OSError), file.open("rb") as opened:
        if report := report_of(opened.read(RESULT_KEPT + 1)):
            return report
    code, _, message = (text or "NO_RESULT: the task ended without a result").partition(": ")
    return failure_report(code, message)
