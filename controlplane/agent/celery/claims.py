"""The heart's side of jobs that are Celery tasks: claims them, has each sent to the queue of its own worker alone, lets
it begin once the control plane has heard so, and reports its end."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog

from controlplane.agent.celery.claim import Claim, Stage, message_of, pulse_of, read_result
from controlplane.agent.celery.fence import TwoWitnesses
from controlplane.agent.celery.remains import is_child
from controlplane.agent.heart import HeldAttempts
from controlplane.agent.outbox import Outbox
from controlplane.agent.outcomes import failure_report
from controlplane.agent.registration import RegisteredServer
from controlplane.agent.transport import ClaimResult, ReportResult, TransportThread, start_transport
from controlplane.agent.verdicts import FINAL_EVENTS, KILL_PATIENCE, log_refusal, shrink_report, timeout_report

log = structlog.get_logger()
POLL = 1.0  # seconds between claims that bring nothing, where no hints say when there is work
RECEIVED_WITHIN = 60.0  # seconds for a worker to take a job out of its own queue; then another may have it
LAST_REPORTS = 5.0  # seconds to be answered at the end
COMES_AGAIN = ("RETRIED", "RETURNED", "LOST")  # ends of a delivery that are none of the job

Order = Callable[[dict[str, Any]], None]


@dataclass
class Claims:
    """Lines are read and looks taken by the heart's main thread; the rest comes from others."""

    queue: str
    folder: Path
    slots: int
    main: int  # the number of the worker's main process
    is_prefork: bool
    fence: TwoWitnesses
    order: Order
    clock: Callable[[], float] = time.monotonic
    outbox: Outbox = field(default_factory=Outbox)

    def __post_init__(self) -> None:
        self._lock = threading.RLock()
        self._claims: dict[str, Claim] = {}
        self._transport: TransportThread | None = None
        self._closed: str | None = None  # why nothing may begin any more
        self._known: deque[str] = deque(maxlen=10_000)
        self._lost: frozenset[str] = frozenset()

    def serve(self, server: RegisteredServer, refused: Callable[[], None]) -> None:
        """Claim as this server, and report to it."""
        if self._transport:
            self._transport.close()
        self._transport = start_transport(server, self.outbox, POLL, self.hear, refused)

    def hear(self, message: ClaimResult | ReportResult) -> None:
        with self._lock:
            if isinstance(message, ClaimResult):
                for item in message.items:
                    self._take(item)
                if self._transport:
                    if message.items:
                        self._transport.request_slots(0)  # until the next look, which knows of these
                    self._transport.acknowledge_claim()
            else:
                self._record_answer(message)

    def list_held(self) -> HeldAttempts:
        """For the heartbeats."""
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
        """Somebody cancelled these."""
        with self._lock:
            for claim in self._select(ids):
                self._stop(claim, {"event": "CANCELLED"}, KILL_PATIENCE)

    def lose(self, ids: Collection[str]) -> None:
        """They were given away, and run elsewhere once it is said that they do not run here."""
        with self._lock:
            self._lost = frozenset(ids)
            for claim in self._select(ids):
                self._stop(claim, None, 0.0)

    def close(self, reason: str) -> None:
        """Nothing begins any more: this worker is ending."""
        with self._lock:
            self._closed = reason
            self._release_unbegun(reason)

    # The heart's main thread

    def read(self, line: list[Any]) -> None:
        """A line of the worker's, of any task."""
        kind, *rest = line
        with self._lock:
            if kind == "+" and rest[3] == self.queue:
                self._adopt(rest[1]).tag = rest[0]
            elif kind == "job":
                self._adopt(rest[0]).timeout = rest[1]
            elif kind == "?":
                self._on_turn(self._adopt(rest[0]))
            elif kind == "unsent" and (claim := self._claims.get(rest[0])):
                self._on_unsent(claim, rest[1], rest[2])
            elif kind in (">", "-") and (claim := self._of_tag(rest[0])):
                if kind == "-":
                    self._on_end(claim, rest[1], rest[3])
                else:
                    claim.pid = rest[1] or claim.pid
                    claim.has_begun = claim.has_begun or claim.pid is not None
                    if claim.stage is Stage.SENT:  # it began under another heart
                        self._run(claim)

    def look(self, running: int, *, takes: bool, open_: bool) -> None:
        """What is due. `running`: how many tasks run here; `takes`: the worker receives messages; `open_`: it may."""
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
                    claim.look_for_signs(pulse_of(self.folder / claim.id), now)
                if claim.stops_until is not None and claim.stage is Stage.RUNNING:
                    self._finish_stopping(claim, now)
            waiting = sum(claim.stage is not Stage.ENDED and not claim.has_begun for claim in self._claims.values())
            may_claim = takes and open_ and not fenced and not self._closed
            if self._transport:
                self._transport.request_slots(max(0, self.slots - running - waiting) if may_claim else 0)
                self._transport.act_now()

    def finish(self, running: Collection[str] | None) -> None:
        """The worker has ended, with the code of the tags in `running` (None: of any): the control plane sees their
        loss. The others are given back without blame. Waits until that is answered, for a while."""
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
        transport.act_now()
        until = time.monotonic() + LAST_REPORTS
        while len(self.outbox) and transport.is_alive() and time.monotonic() < until:
            time.sleep(0.05)
        transport.close()

    # Inside, with the lock

    def _take(self, item: dict[str, Any]) -> None:
        id, job = str(item["id"]), item["job"]
        if id in self._claims:
            return  # a repeated claim brings the same attempts
        claim = self._adopt(id)
        claim.timeout = job.get("timeout_seconds")
        if self._closed or job["action"].get("type") != "celery":
            return self._release(claim, self._closed or "not_allowed")
        self.order({"order": "send", "job": message_of(item)})

    def _adopt(self, id: str) -> Claim:
        """The claim of that id; of one that is not known, an earlier heart's or one that was given away, the control
        plane is asked: it refuses what is not this server's any more."""
        if id not in self._claims:
            self._claims[id] = Claim(id, None, self.clock())
            self._known.append(id)
        return self._claims[id]

    def _on_turn(self, claim: Claim) -> None:
        if claim.stage is Stage.RUNNING and claim.stops_until is None:
            self._run(claim)  # a try of the task's own
            self.order({"order": "begin", "task": claim.id})
        elif claim.stage is Stage.SENT:
            if reason := self._closed or ("fenced" if self.fence.control_plane_has_passed() else None):
                return self._release(claim, reason)
            claim.stage = Stage.STARTING
            self._report(claim, {"event": "STARTED"})

    def _on_unsent(self, claim: Claim, code: str, text: str) -> None:
        if not code:
            return self._release(claim, text)
        self._report(claim, {"event": "STARTED"})
        self._end(claim, failure_report(code, text))

    def _on_end(self, claim: Claim, outcome: str, text: str | None) -> None:
        """Its message is settled, or comes again."""
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
            self.order({"order": "begin", "task": claim.id})
        elif claim.stage is Stage.STARTING:
            self.order({"order": "revoke", "task": claim.id})
            self._forget(claim)

    def _run(self, claim: Claim) -> None:
        claim.stage = Stage.RUNNING
        if claim.timeout is not None and claim.times_out_at is None:
            claim.times_out_at = self.clock() + claim.timeout

    def _stop(self, claim: Claim, verdict: dict[str, Any] | None, patience: float) -> None:
        """End its code where the pool can do that; the first verdict stands. None: nothing is reported."""
        if claim.stage is Stage.ENDED:
            return
        if claim.stage is not Stage.RUNNING or claim.tag is None:
            # One that is in flight arrives before the verdict, which is in order.
            self.outbox.withdraw_reports(claim.id)
            self.order({"order": "revoke", "task": claim.id})
            self._end(claim, verdict)
        elif claim.stops_until is None:
            claim.stops_until, claim.verdict = self.clock() + patience, verdict
            log.info("Stopping a job", attempt=claim.id, why=verdict)
            self.order({"order": "revoke", "task": claim.id, "signal": "TERM" if patience else "KILL"})

    def _finish_stopping(self, claim: Claim, now: float) -> None:
        """Its verdict is said when its process has gone. Threads cannot be ended: what they run ends by itself."""
        alive = self.is_prefork and claim.pid is not None and is_child(claim.pid, self.main)
        if alive and claim.stops_until is not None and now >= claim.stops_until:
            with contextlib.suppress(OSError):
                os.kill(claim.pid or 0, signal.SIGKILL)
        if claim.is_revoked and not alive:
            self._end(claim, claim.verdict)

    def _release(self, claim: Claim, reason: str) -> None:
        if claim.stage is not Stage.ENDED:
            self.outbox.withdraw_reports(claim.id)
            self.order({"order": "revoke", "task": claim.id})
            self._end(claim, {"event": "RELEASED", "reason": reason})

    def _release_unbegun(self, reason: str) -> None:
        for claim in list(self._claims.values()):
            if claim.is_before_code:
                self._release(claim, reason)

    def _end(self, claim: Claim, report: dict[str, Any] | None) -> None:
        claim.stage = Stage.ENDED
        if report is None:
            self._forget(claim)
        else:
            self._report(claim, report)

    def _report(self, claim: Claim, report: dict[str, Any]) -> None:
        self.outbox.add_reports({"attempt": claim.id, **report})
        if self._transport:
            self._transport.act_now()

    def _forget(self, claim: Claim) -> None:
        self._claims.pop(claim.id, None)
        with contextlib.suppress(OSError):
            (self.folder / claim.id).unlink()
        with contextlib.suppress(OSError):  # of a process that was killed
            os.unlink(pulse_of(self.folder / claim.id))
        self.order({"order": "forget", "task": claim.id})

    def _select(self, ids: Collection[str]) -> list[Claim]:
        return [self._claims[id] for id in ids if id in self._claims]

    def _of_tag(self, tag: str) -> Claim | None:
        return next((claim for claim in self._claims.values() if claim.tag == tag), None)
