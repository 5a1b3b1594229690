"""The thread that sends reports and claims jobs, one call at a time and in order."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import structlog

from controlplane.agent.api.backoff import full_jitter
from controlplane.agent.api.claim_plan import ClaimPlan
from controlplane.agent.api.client import Refused, Unreachable
from controlplane.agent.api.hints import HintThread
from controlplane.agent.api.outbox import Outbox, Report
from controlplane.agent.api.registration import RegisteredServer
from controlplane.agent.from_code.outcomes import failure_report
from controlplane.agent.limits import MESSAGE_LIMIT

log = structlog.get_logger()
UNREADABLE_STATUSES = (400, 413, 422)  # these refuse the body, not the sender
POLL_WITH_HINTS = 300.0  # seconds between claims that return no job, while hints are available
COMPANY = 0.02  # seconds that a report waits for others while all slots have work
NOT_STORED = "not_stored"  # the control plane could not store this report


@dataclass(frozen=True)
class ClaimResult:
    """The end of a claim, with the attempts it returned. There may be none."""

    items: list[dict[str, Any]]


@dataclass(frozen=True)
class ReportResult:
    report: Report
    result: dict[str, Any]


class TransportThread(threading.Thread):
    """Send reports and claims. This thread calls all callbacks.

    `poll` is the time in seconds between claims that return no job, if there are no hints. `deliver` gets each result.
    `refused` is called when a call is refused as a whole: the next heartbeat then shows why.
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
        self._plan = ClaimPlan()
        self._may_wait = False
        self._wanted: object = None  # what the last call of `request_slots` wanted
        self._not_before = 0.0
        self._failures = 0
        self._closed = False
        self._last_refusal = ""

    @property
    def is_claiming(self) -> bool:
        """Return True while a claim is not acknowledged.

        It may have returned attempts that the worker does not know yet.
        """
        return self._plan.is_claiming

    def request_slots(self, slots: int, ahead: int = 0, *, may_wait: bool = False) -> None:
        """Claim up to `slots` jobs from now on, and `ahead` more. A claim that is under way does not change.

        `may_wait`: reports may wait for company, because all slots have work. Then this thread is woken only if
        something has changed.
        """
        self._may_wait = may_wait
        self._plan.want(slots, ahead)
        if slots <= 0 and self._hints is not None:
            self._hints.set_wanted(False)
        wanted = slots, ahead, may_wait, self._outbox.company_due_at(0.0)
        if not may_wait or wanted != self._wanted:
            self._woken.set()
        self._wanted = wanted

    def acknowledge_claim(self) -> None:
        """Record that the worker has accepted a ClaimResult. Without this its slots would be claimed twice."""
        self._plan.is_claiming = False
        self._woken.set()

    def claim_now(self, jobs: int) -> None:
        """Claim at once, because a hint assigned this number of jobs to this worker."""
        self._plan.follow_hint(jobs)
        self._woken.set()

    def act_now(self) -> None:
        """Check at once if there is something to send or claim."""
        self._woken.set()

    def retry_now(self) -> None:
        """Stop waiting, because the control plane answers again."""
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
            # A control plane that answers heartbeats may refuse other calls as too many: respect its Retry-After.
            while (early := self._not_before - time.monotonic()) > 0 and not self._closed:
                self._recovered.clear()
                if not self._closed:
                    self._recovered.wait(early)

    def send_and_claim(self) -> float:
        """Send all reports, claim if there are free slots, and return the seconds until the next call."""
        unsent = self._outbox.count_due()
        try:
            while not self._wait_for_company() and (reports := self._outbox.oldest_reports()):
                self._send_reports(reports)
                unsent -= len(reports)
                if unsent <= 0 and not self._failures:
                    break  # the claim does not wait for reports that were added since
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
        is_claim_next = self._plan.slots and not self._plan.is_claiming  # `acknowledge_claim` wakes this thread
        pause = self._plan.due_at(self._claim_pause) - time.monotonic() if is_claim_next else self._poll
        if self._outbox.count_due():
            pause = min(pause, self._wait_for_company())
        elif (due := self._outbox.next_retry_at()) is not None:
            pause = min(pause, due - time.monotonic())
        return max(0.0, pause)

    def _wait_for_company(self) -> float:
        """Return the seconds that reports may wait for others, or 0.

        They do not wait when a claim is due: until the control plane knows which attempts have ended, it counts them
        and returns fewer jobs.
        """
        if not self._may_wait or self._plan.is_due(self._claim_pause):
            return 0.0
        return max(0.0, self._outbox.company_due_at(COMPANY) - time.monotonic())

    @property
    def _claim_pause(self) -> float:
        return self._poll if self._hints is None or not self._hints.are_held_open else max(self._poll, POLL_WITH_HINTS)

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
            else:  # one unreadable report must not delay the others
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
        plan = self._plan
        if (request := plan.begin(self._claim_pause)) is None:
            return
        try:
            answer = self._server.post("claims", request)
            items, self._last_refusal = answer.get("attempts") or [], ""
            if request["limit"]:
                plan.slots_wanted = answer.get("slots_wanted")
        except Refused as refused:
            if refused.code != self._last_refusal:
                log.warning("Claim refused", code=refused.code, detail=refused.detail)
            self._last_refusal, items = refused.code, []
            self._refused()
        is_enough = plan.end(request, len(items))
        self._deliver(ClaimResult(items))
        if request["limit"] and self._hints is not None:
            is_more_wanted = is_enough and plan.slots > 0
            self._hints.record_claim(
                len(items), is_more_wanted=is_more_wanted, waits_for_slots=plan.slots_wanted is not None
            )


def start_transport(
    server: RegisteredServer,
    outbox: Outbox,
    poll: float,
    deliver: Callable[[ClaimResult | ReportResult], None],
    refused: Callable[[], None],
) -> TransportThread:
    """Start a transport thread that claims, together with its hint thread."""
    hints = HintThread(server, lambda jobs: transport.claim_now(jobs), lambda: transport.act_now())
    transport = TransportThread(server, outbox, poll, deliver, refused, hints)
    transport.start()
    hints.start()
    return transport
