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
from controlplane.agent.outbox import Outbox, Report
from controlplane.agent.outcomes import failed
from controlplane.agent.registration import Server

log = structlog.get_logger()
UNREADABLE = (400, 413, 422)  # statuses that blame what we sent, not who we are
NOT_STORED = "not_stored"  # the control plane could not write it


@dataclass(frozen=True)
class Claimed:
    """The end of a claim: what it brought, perhaps nothing."""

    items: list[dict[str, Any]]


@dataclass(frozen=True)
class Reported:
    report: Report
    result: dict[str, Any]


class Courier(threading.Thread):
    """`poll`: seconds between claims that bring nothing. Both callbacks are called in this thread.

    A call that is refused as a whole is only a hint (`refused`): what it means is for the next heartbeat to say.
    """

    def __init__(
        self,
        server: Server,
        outbox: Outbox,
        poll: float,
        deliver: Callable[[Claimed | Reported], None],
        refused: Callable[[], None],
    ) -> None:
        super().__init__(name="courier", daemon=True)
        self._server, self._outbox, self._poll = server, outbox, poll
        self._deliver, self._refused = deliver, refused
        self._nudged, self._heard = threading.Event(), threading.Event()
        self._lock = threading.Lock()
        self._wanted = 0
        self._claiming = False
        self._request: dict[str, Any] | None = None
        self._claim_at = self._not_before = 0.0  # of the monotonic clock
        self._failures = 0
        self._closed = False
        self._last_refusal = ""

    @property
    def claiming(self) -> bool:
        """A claim was made whose end `settle` has not acknowledged: there may be attempts we do not know of."""
        return self._claiming

    def want(self, slots: int) -> None:
        """Claim up to `slots`; says nothing about a claim that is under way."""
        with self._lock:
            self._wanted = slots

    def settle(self) -> None:
        """A Claimed has been taken in; without this, slots it fills would be claimed twice."""
        self._claiming = False

    def nudge(self) -> None:
        """There may be something to do."""
        self._nudged.set()

    def heard(self) -> None:
        """The control plane answers again: no need to wait longer."""
        self._heard.set()

    def close(self) -> None:
        self._closed = True
        self._nudged.set()
        self._heard.set()

    def run(self) -> None:
        while not self._closed:
            try:
                pause = self.round()
            except Exception:
                log.exception("Courier failed")
                pause = self._backoff()
            if not self._failures:
                self._nudged.wait(pause)
                self._nudged.clear()
                continue
            self._heard.clear()
            if not self._closed:
                self._heard.wait(pause)
            # What answers heartbeats may be too busy for all else: it has said when to come again.
            while (early := self._not_before - time.monotonic()) > 0 and not self._closed:
                self._heard.clear()
                if not self._closed:
                    self._heard.wait(early)

    def round(self) -> float:
        """Send what is there, claim if wanted; returns the seconds to wait."""
        try:
            while reports := self._outbox.batch():
                self._send(reports)
            self._claim()
        except Unreachable as error:
            pause = min(self._cap, (error.retry_after or 0) + self._backoff())
            self._not_before = time.monotonic() + min(self._cap, error.retry_after or 0)
            log.warning("Control plane unreachable", call="reports or claims", why=str(error), retry_in=round(pause, 2))
            return pause
        except Refused as refused:
            log.warning("Reports refused", status=refused.status, code=refused.code, detail=refused.detail)
            self._refused()
            return self._backoff()
        self._failures = 0
        pause = self._claim_at - time.monotonic() if self._wanted else self._poll
        if (due := self._outbox.next_due()) is not None:
            pause = min(pause, due - time.monotonic())
        return max(0.0, pause)

    @property
    def _cap(self) -> float:
        return self._server.config.timeout / 4

    def _backoff(self) -> float:
        self._failures += 1
        return full_jitter(self._failures, self._cap)

    def _send(self, reports: list[Report]) -> None:
        if not reports:
            return
        try:
            results = self._server.post("reports", {"reports": reports}).get("results") or []
        except Refused as refused:
            if refused.status not in UNREADABLE:
                raise
            if len(reports) == 1:
                self._give_up(reports[0], refused)
            else:  # one that cannot be read must not hold up the others
                for _ in reports:
                    self._send(self._outbox.batch(1))
            return
        if len(results) != len(reports):
            raise Unreachable(f"{len(results)} results for {len(reports)} reports")
        unstored = {place for place, result in enumerate(results) if result.get("code") == NOT_STORED}
        self._outbox.answered(len(reports), unstored, self._cap)
        for place, (report, result) in enumerate(zip(reports, results, strict=True)):
            if place in unstored:
                log.error("Report not stored: saying it again later", attempt=report["attempt"], report=report["event"])
            else:
                self._deliver(Reported(report, result))

    def _give_up(self, report: Report, refused: Refused) -> None:
        log.error("Report could not be read", attempt=report["attempt"], report=report["event"], why=str(refused))
        if report["event"] == "COMPLETED" or (report["event"] == "FAILED" and report["error"]["traceback"]):
            problem = failed("REPORT_REFUSED", f"the control plane refused the report: {refused.detail}"[:1000])
            replacement = {"attempt": report["attempt"], **problem}
            self._outbox.replace_oldest(replacement)
            self._send([replacement])
        else:
            self._outbox.answered(1)
            self._deliver(Reported(report, {"attempt": report["attempt"], "accepted": False, "code": refused.code}))

    def _claim(self) -> None:
        with self._lock:
            if self._request is None:
                if self._claiming or self._wanted <= 0 or time.monotonic() < self._claim_at:
                    return
                self._request = {"limit": self._wanted, "request_id": str(uuid.uuid4())}
                self._claiming = True
        try:
            items = self._server.post("claims", self._request).get("attempts") or []
            self._last_refusal = ""
        except Refused as refused:
            if refused.code != self._last_refusal:
                log.warning("Claim refused", code=refused.code, detail=refused.detail)
            self._last_refusal, items = refused.code, []
            self._refused()
        if len(items) < self._request["limit"]:
            self._claim_at = time.monotonic() + self._poll
        self._request = None
        self._deliver(Claimed(items))
