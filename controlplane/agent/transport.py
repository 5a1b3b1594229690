"""The thread that carries reports and claims, one call at a time and in order."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import structlog

from controlplane.agent.backoff import full_jitter
from controlplane.agent.client import Refused, Unreachable
from controlplane.agent.hints import HintThread
from controlplane.agent.limits import MESSAGE_LIMIT
from controlplane.agent.outbox import Outbox, Report
from controlplane.agent.outcomes import failure_report
from controlplane.agent.registration import RegisteredServer

log = structlog.get_logger()
UNREADABLE_STATUSES = (400, 413, 422)  # statuses that blame what we sent, not who we are
HINTED_POLL = 300.0  # seconds between claims that bring nothing while hints say when there is work
NOT_STORED = "not_stored"  # the control plane could not write it


@dataclass(frozen=True)
class ClaimResult:
    """The end of a claim: what it brought, perhaps nothing."""

    items: list[dict[str, Any]]


@dataclass(frozen=True)
class ReportResult:
    report: Report
    result: dict[str, Any]


class TransportThread(threading.Thread):
    """`poll`: seconds between claims that bring nothing, where no hints say when to claim. Both callbacks are called in
    this thread.

    A call that is refused as a whole is only a hint (`refused`): what it means is for the next heartbeat to say.
    """

    def __init__(
        self,
        server: RegisteredServer,
        outbox: Outbox,
        poll: float,
        deliver: Callable[[ClaimResult | ReportResult], None],
        refused: Callable[[], None],
        hints: HintThread | None = None,
    ) -> None:
        super().__init__(name="transport", daemon=True)
        self._server, self._outbox, self._poll = server, outbox, poll
        self._deliver, self._refused, self._hints = deliver, refused, hints
        self._woken, self._recovered = threading.Event(), threading.Event()
        self._lock = threading.Lock()
        self._requested_slots = 0
        self._share: int | None = None  # of the jobs that wait: what a hint left to this worker
        self._is_rest_left = False  # by the claim under way: to whoever else is woken
        self._claiming = False
        self._claim_request: dict[str, Any] | None = None
        self._claimed_in_vain_at = float("-inf")  # of the monotonic clock
        self._not_before = 0.0
        self._failures = 0
        self._closed = False
        self._last_refusal = ""

    @property
    def is_claiming(self) -> bool:
        """A claim was made whose end is not acknowledged yet: there may be attempts we do not know of."""
        return self._claiming

    def request_slots(self, slots: int) -> None:
        """Claim up to `slots`; says nothing about a claim that is under way."""
        with self._lock:
            if not self._requested_slots:
                # There was no room, or no leave: there may be work meanwhile.
                self._claimed_in_vain_at, self._share = float("-inf"), None
            self._requested_slots = slots
        if slots <= 0 and self._hints is not None:
            self._hints.set_wanted(False)

    def acknowledge_claim(self) -> None:
        """A Claimed has been taken in; without this, slots it fills would be claimed twice."""
        self._claiming = False

    def claim_now(self, jobs: int) -> None:
        """There may be work: so many jobs for this worker, the others are for others."""
        with self._lock:
            self._claimed_in_vain_at, self._share = float("-inf"), jobs
        self._woken.set()

    def act_now(self) -> None:
        """There may be something to do."""
        self._woken.set()

    def retry_now(self) -> None:
        """The control plane answers again: no need to wait longer."""
        self._recovered.set()

    def close(self) -> None:
        self._closed = True
        if self._hints is not None:
            self._hints.close()
        self._woken.set()
        self._recovered.set()

    def run(self) -> None:
        while not self._closed:
            try:
                pause = self.send_and_claim()
            except Exception:
                log.exception("Transport failed")
                pause = self._next_backoff()
            if not self._failures:
                self._woken.wait(pause)
                self._woken.clear()
                continue
            self._recovered.clear()
            if not self._closed:
                self._recovered.wait(pause)
            # What answers heartbeats may be too busy for all else: it has said when to come again.
            while (early := self._not_before - time.monotonic()) > 0 and not self._closed:
                self._recovered.clear()
                if not self._closed:
                    self._recovered.wait(early)

    def send_and_claim(self) -> float:
        """Send what is there, claim if wanted; returns the seconds to wait."""
        try:
            while reports := self._outbox.oldest_reports():
                self._send_reports(reports)
            self._claim_jobs()
        except Unreachable as error:
            pause = min(self._backoff_cap, (error.retry_after or 0) + self._next_backoff())
            self._not_before = time.monotonic() + min(self._backoff_cap, error.retry_after or 0)
            log.debug("Reports and claims wait", why=str(error), retry_in=round(pause, 2))
            return pause
        except Refused as refused:
            log.warning("Reports refused", status=refused.status, code=refused.code, detail=refused.detail)
            self._refused()
            return self._next_backoff()
        self._failures = 0
        pause = self._next_claim_at - time.monotonic() if self._requested_slots else self._poll
        if (due := self._outbox.next_retry_at()) is not None:
            pause = min(pause, due - time.monotonic())
        return max(0.0, pause)

    @property
    def _next_claim_at(self) -> float:
        pause = self._poll if self._hints is None or not self._hints.are_kept_back else max(self._poll, HINTED_POLL)
        return self._claimed_in_vain_at + pause

    @property
    def _backoff_cap(self) -> float:
        return self._server.config.timeout / 4

    def _next_backoff(self) -> float:
        self._failures += 1
        return full_jitter(self._failures, self._backoff_cap)

    def _send_reports(self, reports: list[Report]) -> None:
        if not reports:
            return
        try:
            results = self._server.post("reports", {"reports": reports}).get("results") or []
        except Refused as refused:
            if refused.status not in UNREADABLE_STATUSES:
                raise
            if len(reports) == 1:
                self._give_up_report(reports[0], refused)
            else:  # one that cannot be read must not hold up the others
                for _ in reports:
                    self._send_reports(self._outbox.oldest_reports(1))
            return
        if len(results) != len(reports):
            raise Unreachable(f"{len(results)} results for {len(reports)} reports")
        unstored = {place for place, result in enumerate(results) if result.get("code") == NOT_STORED}
        self._outbox.record_answer(len(reports), unstored, self._backoff_cap)
        for place, (report, result) in enumerate(zip(reports, results, strict=True)):
            if place in unstored:
                log.error(
                    "Report not stored: sending it again later", attempt=report["attempt"], report=report["event"]
                )
            else:
                self._deliver(ReportResult(report, result))

    def _give_up_report(self, report: Report, refused: Refused) -> None:
        log.error("Report could not be read", attempt=report["attempt"], report=report["event"], why=str(refused))
        if report["event"] == "COMPLETED" or (report["event"] == "FAILED" and report["error"]["traceback"]):
            message = f"the control plane refused the report: {refused.detail}"[:MESSAGE_LIMIT]
            problem = failure_report("REPORT_REFUSED", message)
            replacement = {"attempt": report["attempt"], **problem}
            self._outbox.replace_oldest(replacement)
            self._send_reports([replacement])
        else:
            self._outbox.record_answer(1)
            self._deliver(ReportResult(report, {"attempt": report["attempt"], "accepted": False, "code": refused.code}))

    def _claim_jobs(self) -> None:
        with self._lock:
            if self._claim_request is None:
                if self._claiming or self._requested_slots <= 0 or time.monotonic() < self._next_claim_at:
                    return
                limit = self._requested_slots if self._share is None else min(self._requested_slots, self._share)
                self._claim_request = {"limit": limit, "request_id": str(uuid.uuid4())}
                self._is_rest_left = limit < self._requested_slots
                self._claiming, self._share = True, None
        try:
            items = self._server.post("claims", self._claim_request).get("attempts") or []
            self._last_refusal = ""
        except Refused as refused:
            if refused.code != self._last_refusal:
                log.warning("Claim refused", code=refused.code, detail=refused.detail)
            self._last_refusal, items = refused.code, []
            self._refused()
        is_enough = len(items) < self._claim_request["limit"] or self._is_rest_left
        if is_enough:
            self._claimed_in_vain_at = time.monotonic()
        self._claim_request = None
        self._deliver(ClaimResult(items))
        if self._hints is not None:
            self._hints.record_claim(len(items), is_more_wanted=is_enough and self._requested_slots > 0)


def start_transport(
    server: RegisteredServer,
    outbox: Outbox,
    poll: float,
    deliver: Callable[[ClaimResult | ReportResult], None],
    refused: Callable[[], None],
) -> TransportThread:
    """One that claims, with the thread that waits for hints."""
    hints = HintThread(server, lambda jobs: transport.claim_now(jobs), lambda: transport.act_now())
    transport = TransportThread(server, outbox, poll, deliver, refused, hints)
    transport.start()
    hints.start()
    return transport
