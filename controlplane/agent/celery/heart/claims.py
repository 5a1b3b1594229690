"""Claims of jobs that are Celery tasks, in the heart.

The worker sends each claimed job to its own queue. A job begins once the control plane has accepted STARTED. The heart
reports its end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import structlog

from controlplane.agent.api.heartbeat_thread import HeldAttempts
from controlplane.agent.api.registration import RegisteredServer
from controlplane.agent.api.reports import FINAL_EVENTS, KILL_PATIENCE, log_refusal, shrink_report, timeout_report
from controlplane.agent.api.transport import ClaimResult, ReportResult, start_transport
from controlplane.agent.celery.heart.claim import Claim, Stage, read_result, send_order
from controlplane.agent.celery.heart.claim_transitions import ClaimTransitions
from controlplane.agent.celery.heart.fence import TwoWitnesses
from controlplane.agent.celery.job_files import pulse_file
from controlplane.agent.celery.messages import (
    BeginJob,
    FromWorker,
    JobKnown,
    JobNotSent,
    JobWaiting,
    Revoke,
    TaskEnded,
    TaskHeld,
    TaskRunning,
)
from controlplane.agent.from_code.outcomes import failure_report

log = structlog.get_logger()
POLL = 1.0  # seconds between two claims if the first got no job and no hint arrives
RECEIVED_WITHIN = 60.0  # seconds in which the worker must receive a job from its own queue; later the job is released
LAST_REPORTS = 5.0  # seconds to wait for the responses to the last reports
COMES_AGAIN = ("RETRIED", "RETURNED", "LOST")  # outcomes that end a delivery, but not the job


@dataclass(kw_only=True)
class CeleryClaims(ClaimTransitions):
    """The claimed jobs of one worker. The heart's main thread calls `read` and `look`, other threads the rest."""

    queue: str
    slots: int
    fence: TwoWitnesses

    def __post_init__(self) -> None:
        super().__post_init__()
        self._closed: str | None = None  # reason why no more jobs may begin
        self._lost: frozenset[str] = frozenset()

    def serve(self, server: RegisteredServer, refused: Callable[[], None]) -> None:
        """Claim jobs and send reports as this server. `refused` is called if the control plane refuses the server."""
        if self._transport:
            self._transport.close()
        self._transport = start_transport(server, self.outbox, POLL, self.record_result, refused)

    def record_result(self, message: ClaimResult | ReportResult) -> None:
        """Record new claims, or the response to a report."""
        with self._lock:
            if isinstance(message, ClaimResult):
                try:
                    for item in message.items:
                        self._take(item)
                finally:  # a claim that is not acknowledged would be the last one
                    if self._transport:
                        if message.items:
                            self._transport.request_slots(0)  # no more claims until the next look has counted these
                        self._transport.acknowledge_claim()
            else:
                self._record_answer(message)

    def list_held(self) -> HeldAttempts:
        """Return the held attempts, for a heartbeat."""
        with self._lock:
            started = (Stage.RUNNING, Stage.ENDED)
            claims = list(self._claims.values())
            running: dict[bool, list[dict[str, Any]]] = {False: [], True: []}
            for claim in claims:
                if claim.stage in started and claim.has_begun:
                    is_silent = claim.is_silent and claim.stage is Stage.RUNNING
                    running[is_silent].append({"attempt": claim.id, "pid": claim.pid})
            return HeldAttempts(
                claimed=[claim.id for claim in claims if claim.stage not in started],
                running=running[False],
                silent=running[True],
                stopped=sorted(id for id in self._lost.intersection(self._known) if id not in self._claims),
            )

    def cancel(self, ids: Collection[str]) -> None:
        """Cancel these attempts."""
        with self._lock:
            for claim in self._select(ids):
                self._stop(claim, {"event": "CANCELLED"}, KILL_PATIENCE)

    def lose(self, ids: Collection[str]) -> None:
        """Stop these attempts, because they belong to another server now.

        They run there once a heartbeat reports them stopped.
        """
        with self._lock:
            self._lost = frozenset(ids)
            for claim in self._select(ids):
                self._stop(claim, None, 0.0)

    def close(self, reason: str) -> None:
        """Begin no more jobs, because this worker is ending."""
        with self._lock:
            self._closed = reason
            self._release_unbegun(reason)

    # Used by the heart's main thread

    def read(self, message: FromWorker) -> None:
        """Record a message of the worker about a task."""
        with self._lock:
            match message:
                case TaskHeld(tag, id) if message.queue == self.queue:
                    self._adopt(id).tag = tag
                case JobKnown(attempt, timeout):
                    self._adopt(attempt).timeout = timeout
                case JobWaiting(attempt):
                    self._on_waiting(self._adopt(attempt))
                case JobNotSent(attempt, code, text) if claim := self._claims.get(attempt):
                    self._on_not_sent(claim, code, text)
                case TaskEnded(tag) if claim := self._of_tag(tag):
                    self._on_end(claim, message.outcome, message.text)
                case TaskRunning(tag, pid) if claim := self._of_tag(tag):
                    claim.pid = pid or claim.pid
                    claim.has_begun = claim.has_begun or claim.pid is not None
                    if claim.stage is Stage.SENT:  # it began under an earlier heart
                        self._run(claim)

    def look(self, running: int, *, takes: bool, open_: bool) -> None:
        """Do the periodic work: timeouts, the fence, signs of life, and the number of jobs to claim.

        `running` is the number of running tasks. `takes` is True if the worker receives messages, `open_` if it is not
        cordoned.
        """
        now = self.clock()
        fenced = self.fence.control_plane_has_passed()
        with self._lock:
            for claim in list(self._claims.values()):
                if fenced:
                    self._stop(claim, {"event": "RELEASED", "reason": "fenced"}, 0.0)
                elif (
                    claim.stage is Stage.SENT and not claim.tag and not (open_ and now < claim.since + RECEIVED_WITHIN)
                ):
                    self._release(claim, "not_received" if open_ else "cordoned")
                elif claim.times_out_at and now >= claim.times_out_at and claim.stops_until is None:
                    log.warning("Job exceeded its timeout", attempt=claim.id, timeout=claim.timeout)
                    self._stop(claim, timeout_report(claim.timeout), KILL_PATIENCE)
                if claim.stage is Stage.RUNNING:
                    claim.look_for_signs(pulse_file(self.folder / claim.id), now)
                if claim.stops_until is not None and claim.stage is Stage.RUNNING:
                    self._finish_stopping(claim, now)
            # The task of a claim that has begun is one of the running ones.
            more = sum(one.slots - one.has_begun for one in self._claims.values() if one.stage is not Stage.ENDED)
            may_claim = takes and open_ and not fenced and not self._closed
            if self._transport:
                self._transport.request_slots(max(0, self.slots - running - more) if may_claim else 0)

    def finish(self, running: Collection[str] | None) -> None:
        """Release the jobs of a worker that has ended, and wait some seconds for the responses.

        `running` are the tags of tasks whose code ran. None means that the code of any task may have run. Jobs whose
        code ran are not released, because the control plane counts them as lost.
        """
        with self._lock:
            for claim in list(self._claims.values()):
                if claim.stage is Stage.ENDED:
                    continue
                if claim.stops_until is not None:
                    self._end(claim, claim.verdict)
                elif claim.stage is not Stage.RUNNING or not (running is None or claim.tag in running):
                    self._release(claim, self._closed or "worker_ended")
        if not (transport := self._transport):
            return
        transport.request_slots(0)
        until = time.monotonic() + LAST_REPORTS
        while len(self.outbox) and transport.is_alive() and time.monotonic() < until:
            time.sleep(0.05)
        transport.close()

    # Private; callers hold the lock

    def _take(self, item: dict[str, Any]) -> None:
        id, job = str(item["id"]), item["job"]
        if id in self._claims:
            return  # a repeated claim call returns the same attempts
        claim = self._adopt(id)
        claim.timeout, claim.slots = job.get("timeout_seconds"), job.get("worker_slots") or 1
        if self._closed or job["action"].get("type") != "celery":
            return self._release(claim, self._closed or "not_allowed")
        self.order(send_order(item))

    def _on_waiting(self, claim: Claim) -> None:
        if claim.stage is Stage.RUNNING and claim.stops_until is None:
            self._run(claim)  # Celery retries the task within the attempt
            self.order(BeginJob(claim.id))
        elif claim.stage is Stage.SENT:
            if reason := self._closed or ("fenced" if self.fence.control_plane_has_passed() else None):
                return self._release(claim, reason)
            claim.stage = Stage.STARTING
            self._report(claim, {"event": "STARTED"})

    def _on_not_sent(self, claim: Claim, code: str, text: str) -> None:
        if not code:
            return self._release(claim, text)
        self._report(claim, {"event": "STARTED"})
        self._end(claim, failure_report(code, text))

    def _on_end(self, claim: Claim, outcome: str, text: str | None) -> None:
        """Record that a delivery ended. Then the job has ended, or its message will be delivered again."""
        if claim.stage is Stage.ENDED:
            return
        begun, claim.tag = claim.stage is Stage.RUNNING or outcome in ("COMPLETED", "FAILED"), None
        if claim.stops_until is not None and (outcome != "COMPLETED" or claim.verdict != {"event": "CANCELLED"}):
            claim.is_revoked = True
            self._finish_stopping(claim, self.clock())
        elif outcome in COMES_AGAIN:
            claim.pid, claim.since = None, self.clock()
        elif not begun:
            self._release(claim, "dropped")
        else:
            self._end(claim, read_result(self.folder / claim.id, outcome, text))

    def _record_answer(self, answer: ReportResult) -> None:
        report, result = answer.report, answer.result
        if (claim := self._claims.get(report["attempt"])) is None:
            return
        accepted = bool(result.get("accepted"))
        if not accepted:
            log_refusal(report, result)
        if smaller := shrink_report(report, result):
            self._report(claim, smaller)
        elif report["event"] in FINAL_EVENTS:
            self._forget(claim)
        elif claim.stage is Stage.STARTING and accepted:
            self._run(claim)
            log.info("Job started", attempt=claim.id)
            self.order(BeginJob(claim.id))
        elif claim.stage is Stage.STARTING:
            self.order(Revoke(claim.id))
            self._forget(claim)
