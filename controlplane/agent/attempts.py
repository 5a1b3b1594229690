"""The attempts this worker holds, from the claim to the answered report. Main thread only, but for `holdings`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import structlog

from controlplane.agent.allow import Allowances
from controlplane.agent.fence import Fence
from controlplane.agent.gauge import Gauge
from controlplane.agent.heart import Holdings
from controlplane.agent.logs import Log
from controlplane.agent.outbox import Outbox, Report
from controlplane.agent.outcomes import failed
from controlplane.agent.runners import command_for, report_for
from controlplane.agent.supervisor import Ended, Supervisor

log = structlog.get_logger()
PATIENCE = 2.0  # seconds from SIGTERM to SIGKILL
FINAL = ("COMPLETED", "FAILED", "CANCELLED", "RELEASED")
BRIEF = 1000  # characters of a message that is short enough for certain


class Stage(Enum):
    STARTING = "its STARTED has not been answered"
    RUNNING = "its code runs"
    KILLED = "we are killing its code; `verdict` is what to report"
    OVER = "nothing of it runs; its last report has not been answered"


@dataclass
class Attempt:
    item: dict[str, Any]
    gauge: Gauge
    stage: Stage = Stage.STARTING
    verdict: dict[str, Any] | None = None  # None while KILLED: lost, so there is nothing to report
    pid: int | None = None
    times_out_at: float | None = None  # monotonic
    log: Log = field(default_factory=Log)

    @property
    def id(self) -> str:
        return str(self.item["id"])

    @property
    def live(self) -> bool:
        return self.stage is not Stage.OVER

    @property
    def timeout(self) -> float | None:
        seconds = self.item["job"].get("timeout_seconds")
        return None if seconds is None else float(seconds)


class Attempts:
    """`folder`: for files of attempts, named like them. `environment`: what their code's begins with."""

    def __init__(
        self,
        supervisor: Supervisor,
        outbox: Outbox,
        allowances: Allowances,
        fence: Fence,
        folder: Path,
        environment: Mapping[str, str],
    ) -> None:
        self._supervisor, self._outbox, self._allowances, self._fence = supervisor, outbox, allowances, fence
        self._folder, self._environment = folder, environment
        self._attempts: dict[str, Attempt] = {}
        self._taken: frozenset[str] = frozenset()  # what the last answer named as lost
        self._said_stopped: frozenset[str] = frozenset()
        self._withheld: str | None = None  # why nothing may begin any more

    @property
    def live(self) -> int:
        return sum(attempt.live for attempt in self._attempts.values())

    def holdings(self) -> Holdings:
        """From any thread: what the claimer's and the runner's heartbeats list.

        An attempt that is over stays listed until its report was answered: it is still ours, and must not go stale.
        """
        attempts = list(self._attempts.values())
        return Holdings(
            claimed=[attempt.id for attempt in attempts if attempt.stage is Stage.STARTING],
            running=[
                {"attempt": attempt.id, "pid": self._supervisor.pid(attempt.id) or attempt.pid}
                for attempt in attempts
                if attempt.pid
            ],
            stopped=sorted(self._stopped()),
        )

    def claimed(self, items: list[dict[str, Any]]) -> None:
        """The control plane gave us these; their code begins when their STARTED was accepted."""
        for item in items:
            attempt = Attempt(item, Gauge(self._progress_of(item)))
            if attempt.id in self._attempts:
                continue  # a repeated claim brings the same attempts
            self._attempts[attempt.id] = attempt
            try:
                action = self._allowances.allowed(item["job"]["action"])
            except Exception as error:
                log.warning("Job not allowed here", attempt=attempt.id, job=item["job"]["id"], why=str(error))
                self._over(attempt, {"event": "RELEASED", "reason": "not_allowed"})
            else:
                attempt.item = {**item, "job": {**item["job"], "action": action}}
                if not self._released(attempt):
                    self._outbox.put({"attempt": attempt.id, "event": "STARTED"})

    def answered(self, report: Report, result: dict[str, Any]) -> None:
        """The control plane's word on a report of ours."""
        attempt = self._attempts.get(report["attempt"])
        accepted = bool(result.get("accepted"))
        if report["event"] in ("LOG", "PROGRESS"):
            if attempt:
                (attempt.log if report["event"] == "LOG" else attempt.gauge).answered()
            return
        if not accepted:
            log.warning(
                "Report refused", attempt=report["attempt"], report=report["event"],
                code=result.get("code"), state=result.get("state"),
            )  # fmt: skip
        if attempt is None:
            return
        if smaller := _smaller(report, result):
            self._put(attempt, [smaller])
            return
        if report["event"] in FINAL or (not accepted and attempt.stage is Stage.STARTING):
            self._attempts.pop(attempt.id, None)
        elif attempt.stage is Stage.STARTING:
            self._begin(attempt)

    def ended(self, ended: Ended) -> None:
        """A child is gone, reaped."""
        attempt = self._attempts[ended.key]
        attempt.pid = ended.pid
        if attempt.stage is not Stage.KILLED:
            report = _report_for(attempt, ended)
        elif attempt.verdict is None:
            attempt.gauge.close()
            del self._attempts[attempt.id]
            return
        else:
            report = attempt.verdict
        log.info("Job ended", **_names(attempt), report=report["event"], code=report.get("error", {}).get("code"))
        self._over(attempt, report)

    def hand_on(self) -> None:
        """Report what the code wrote, and how far it has come."""
        for attempt in self._writing():
            self._put(attempt, [*attempt.gauge.take(), *attempt.log.take()])

    def next_to_hand_on(self) -> float | None:
        """Monotonic: when there may be something."""
        due = [at for attempt in self._writing() for at in (attempt.log.due_at(), attempt.gauge.due_at())]
        return min((at for at in due if at is not None), default=None)

    def cancel(self, ids: list[str]) -> None:
        for attempt in self._found(ids):
            log.info("Job cancelled", **_names(attempt))
            self._stop(attempt, {"event": "CANCELLED"}, PATIENCE)

    def taken(self, ids: list[str]) -> None:
        """An answer names these as lost: they run elsewhere as soon as we say that they do not run here."""
        self._taken = frozenset(ids)
        self.lose(ids)

    def has_stopped_more(self) -> bool:
        """Whether there is more to say of that than when this was asked last: a job waits for it."""
        stopped = self._stopped()
        is_more, self._said_stopped = bool(stopped - self._said_stopped), stopped
        return is_more

    def _stopped(self) -> frozenset[str]:
        return frozenset(id for id in self._taken if (attempt := self._attempts.get(id)) is None or not attempt.live)

    def lose(self, ids: list[str] | None = None) -> None:
        """Kill at once and report nothing: they are not ours any more (None: all of them)."""
        for attempt in self._found(list(self._attempts) if ids is None else ids):
            log.warning("Attempt lost", **_names(attempt))
            if attempt.stage is Stage.STARTING:
                self._outbox.withdraw(attempt.id)
                del self._attempts[attempt.id]
            elif self._supervisor.kill(attempt.id) or attempt.stage is Stage.KILLED:
                attempt.stage, attempt.verdict = Stage.KILLED, None

    def release(self, reason: str, patience: float = 0.0) -> None:
        """Give back everything that is not over: kill it, then report RELEASED with `reason`."""
        for attempt in self._found(list(self._attempts)):
            if attempt.stage is not Stage.KILLED:
                log.warning("Job released", **_names(attempt), reason=reason)
            self._stop(attempt, {"event": "RELEASED", "reason": reason}, patience)

    def withhold(self, reason: str) -> None:
        """Begin nothing from now on; what has not begun is given back with `reason`."""
        self._withheld = reason
        for attempt in list(self._attempts.values()):
            if attempt.stage is Stage.STARTING and self._outbox.withdraw(attempt.id):
                self._over(attempt, {"event": "RELEASED", "reason": reason})

    def time_out(self) -> None:
        """Kill what runs for longer than its job may."""
        now = time.monotonic()
        for attempt in self._attempts.values():
            if attempt.stage is Stage.RUNNING and attempt.times_out_at and now >= attempt.times_out_at:
                log.warning("Job exceeded its timeout", **_names(attempt), timeout=attempt.timeout)
                message = f"exceeded its timeout of {attempt.timeout:g} s"
                self._stop(attempt, failed("STEP_TIMEOUT", message), PATIENCE)

    def next_timeout(self) -> float | None:
        """Monotonic."""
        running = [attempt for attempt in self._attempts.values() if attempt.stage is Stage.RUNNING]
        return min((attempt.times_out_at for attempt in running if attempt.times_out_at), default=None)

    def _begin(self, attempt: Attempt) -> None:
        if self._released(attempt):
            return
        try:
            command = command_for(attempt.item, self._progress_of(attempt.item), self._environment)
            self._supervisor.start(attempt.id, command, attempt.log.write)
        except Exception as error:  # whatever a job is made of: it costs no other
            log.warning("Job could not be started", **_names(attempt), why=str(error))
            self._over(attempt, failed("CANNOT_START", str(error)))
            return
        attempt.pid = self._supervisor.pid(attempt.id)
        attempt.stage = Stage.RUNNING
        attempt.times_out_at = None if attempt.timeout is None else time.monotonic() + attempt.timeout
        log.info("Job started", **_names(attempt), number=attempt.item["number"], warden=attempt.pid)

    def _progress_of(self, item: dict[str, Any]) -> Path:
        return self._folder / str(item["id"])

    def _released(self, attempt: Attempt) -> bool:
        """Nothing may begin now, so it is given back."""
        reason = "fenced" if self._fence.passed() else self._withheld
        if reason:
            self._over(attempt, {"event": "RELEASED", "reason": reason})
        return reason is not None

    def _stop(self, attempt: Attempt, verdict: dict[str, Any], patience: float) -> None:
        if attempt.stage is Stage.STARTING:
            self._outbox.withdraw(attempt.id)  # a STARTED in flight is heard before the verdict, which is in order
            self._over(attempt, verdict)
        elif attempt.stage is Stage.RUNNING:
            # What had ended by itself keeps its own result: the control plane decides whether it comes too late.
            if self._supervisor.kill(attempt.id, patience):
                attempt.stage, attempt.verdict = Stage.KILLED, verdict
        elif attempt.stage is Stage.KILLED:
            self._supervisor.kill(attempt.id, patience)  # perhaps sooner than before; the first verdict stands

    def _over(self, attempt: Attempt, report: dict[str, Any]) -> None:
        attempt.stage = Stage.OVER
        self._put(attempt, [*attempt.gauge.close(), *attempt.log.close(), report])

    def _put(self, attempt: Attempt, reports: list[dict[str, Any]]) -> None:
        self._outbox.put(*({"attempt": attempt.id, **report} for report in reports))

    def _writing(self) -> list[Attempt]:
        """Whose code may have written something that may be handed on."""
        stages = (Stage.RUNNING, Stage.KILLED)
        attempts = [attempt for attempt in self._attempts.values() if attempt.stage in stages]
        return [attempt for attempt in attempts if attempt.stage is Stage.RUNNING or attempt.verdict]

    def _found(self, ids: list[str]) -> list[Attempt]:
        found = [self._attempts[id] for id in ids if id in self._attempts]
        return [attempt for attempt in found if attempt.live]


def _report_for(attempt: Attempt, ended: Ended) -> dict[str, Any]:
    try:
        return report_for(attempt.item["job"]["action"], ended)
    except Exception as error:  # whatever the code handed back: it costs no other job
        log.exception("Result not understood", **_names(attempt))
        return failed("NO_RESULT", f"what the process handed back cannot be read: {error!r}"[:BRIEF])


def _smaller(report: Report, result: dict[str, Any]) -> dict[str, Any] | None:
    """What to say instead of a report that was refused for its size; None: it was not, or it was short already."""
    match result.get("code"):
        case "output_too_large":
            return failed("OUTPUT_TOO_LARGE", str(result.get("detail") or "the output is too large"))
        case "error_too_large" if report["error"]["traceback"] or len(report["error"]["message"]) > BRIEF:
            return failed(report["error"]["code"], report["error"]["message"][:BRIEF])
    return None


def _names(attempt: Attempt) -> dict[str, str]:
    return {"attempt": attempt.id, "job": str(attempt.item["job"]["id"])}
