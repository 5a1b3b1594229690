"""Steps of a claimed job: run it, stop its code, send its report, and forget the claim."""

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

from controlplane.agent.api.outbox import Outbox
from controlplane.agent.api.transport import TransportThread
from controlplane.agent.celery.heart.claim import Claim, Stage
from controlplane.agent.celery.heart.leftover_processes import is_child
from controlplane.agent.celery.job_files import pulse_file
from controlplane.agent.celery.messages import ForgetJob, Order, Revoke

log = structlog.get_logger()


@dataclass(kw_only=True)
class ClaimTransitions:
    """The claims of one worker, with the steps of each claim. Callers hold the lock."""

    folder: Path
    main: int  # process id of the worker's main process
    is_prefork: bool
    order: Callable[[Order], None]
    clock: Callable[[], float] = time.monotonic
    outbox: Outbox = field(default_factory=Outbox)

    def __post_init__(self) -> None:
        self._lock = threading.RLock()
        self._claims: dict[str, Claim] = {}
        self._known: deque[str] = deque(maxlen=10_000)
        self._transport: TransportThread | None = None

    def _adopt(self, id: str) -> Claim:
        """Return the claim with this id, or make one.

        An unknown claim was made by an earlier heart, or belongs to another server now. In the second case the control
        plane refuses its report.
        """
        if id not in self._claims:
            self._claims[id] = Claim(id, None, self.clock())
            self._known.append(id)
        return self._claims[id]

    def _run(self, claim: Claim) -> None:
        claim.stage = Stage.RUNNING
        if claim.timeout is not None and claim.times_out_at is None:
            claim.times_out_at = self.clock() + claim.timeout

    def _stop(self, claim: Claim, verdict: dict[str, Any] | None, patience: float) -> None:
        """Stop the code of an attempt, if the pool can do that, and report the `verdict`.

        The first verdict counts. None means that nothing is reported. `patience` is the number of seconds between
        SIGTERM and SIGKILL.
        """
        if claim.stage is Stage.ENDED:
            return
        if claim.stage is not Stage.RUNNING or claim.tag is None:
            # If a report is being sent now, it arrives before the verdict, so the order is right.
            self.outbox.withdraw_reports(claim.id)
            self.order(Revoke(claim.id))
            self._end(claim, verdict)
        elif claim.stops_until is None:
            claim.stops_until, claim.verdict = self.clock() + patience, verdict
            log.info("Stopping a job", attempt=claim.id, why=verdict)
            self.order(Revoke(claim.id, "TERM" if patience else "KILL"))

    def _finish_stopping(self, claim: Claim, now: float) -> None:
        """Report the verdict once the process has ended.

        A thread cannot be stopped, so code in a thread runs to its end.
        """
        alive = self.is_prefork and claim.pid is not None and is_child(claim.pid, self.main)
        if alive and claim.stops_until is not None and now >= claim.stops_until:
            with contextlib.suppress(OSError):
                os.kill(claim.pid or 0, signal.SIGKILL)
        if claim.is_revoked and not alive:
            self._end(claim, claim.verdict)

    def _release(self, claim: Claim, reason: str) -> None:
        if claim.stage is not Stage.ENDED:
            self.outbox.withdraw_reports(claim.id)
            self.order(Revoke(claim.id))
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
        with contextlib.suppress(OSError):  # a killed process may leave this file
            os.unlink(pulse_file(self.folder / claim.id))
        self.order(ForgetJob(claim.id))

    def _select(self, ids: Collection[str]) -> list[Claim]:
        return [self._claims[id] for id in ids if id in self._claims]

    def _of_tag(self, tag: str) -> Claim | None:
        return next((claim for claim in self._claims.values() if claim.tag == tag), None)
