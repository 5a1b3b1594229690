"""The end of a worker. Its jobs get the grace period, then they are killed. Reports get the rest of it."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from controlplane.agent.api.client import Refused
from controlplane.agent.api.heartbeat_thread import HeartbeatThread
from controlplane.agent.api.outbox import Outbox
from controlplane.agent.api.registration import RegisteredServer
from controlplane.agent.api.transport import TransportThread
from controlplane.agent.attempts import AttemptTracker
from controlplane.agent.fence import Fence

log = structlog.get_logger()
LAST_ANSWERS_TIMEOUT = (
    3.0  # seconds for the last responses once all code has ended; reports have the rest of the grace period
)
FORCED_PATIENCE = 1.0  # seconds from SIGTERM to SIGKILL when the grace period is over
NEVER = float("inf")


@dataclass
class Shutdown:
    """The steps from the first signal or refusal to the end of a worker.

    Main thread only. `renew_reapers` sends the fence to the reapers. `save_unanswered` saves on disk the reports that
    the control plane has not answered.
    """

    server: RegisteredServer
    heart: HeartbeatThread
    transport: TransportThread
    attempts: AttemptTracker
    outbox: Outbox
    fence: Fence
    renew_reapers: Callable[[], None]
    save_unanswered: Callable[[], object]
    signals: int = 0
    reason: str | None = None  # a signal's name, or the code of a refusal; None while the worker runs
    is_forced: bool = False
    grace_until: float = NEVER  # this and the next two: monotonic
    give_up_at: float = NEVER
    claims_until: float = NEVER
    is_answered: bool = False
    """The control plane knows that this server ended."""

    @property
    def next_step_at(self) -> float:
        return min(self.grace_until, self.give_up_at)

    def record_signal(self, number: int) -> None:
        """Start the end after a signal, and force it after another one."""
        if number not in (signal.SIGTERM, signal.SIGINT):
            return
        name = signal.Signals(number).name
        log.info(f"Received {name} signal")
        self.signals += 1
        if self.signals > 1:
            self.force("forced")
        elif not self.reason:
            self.start(name)

    def start(self, reason: str) -> None:
        """Claim no more jobs and start no more code."""
        if (fence := self.server.config.last_fence_seconds) is not None:
            self.fence.shorten_deadline(fence)
            self.renew_reapers()
        self.reason = reason
        self.grace_until = time.monotonic() + self.server.config.termination_grace_period
        self.transport.request_slots(0)
        self.attempts.block_starts("terminating")
        self.heart.report_state("TERMINATING")

    def force(self, reason: str) -> None:
        """Kill all code that is left."""
        if not self.is_forced:
            self.is_forced, self.grace_until = True, NEVER
            log.warning("Killing the jobs that are left", jobs=self.attempts.live_count, reason=reason)
            self.attempts.ends.release_all(reason, FORCED_PATIENCE)
            self.give_up_at = time.monotonic() + (
                FORCED_PATIENCE + LAST_ANSWERS_TIMEOUT if self.attempts.live_count else 0
            )

    def advance(self) -> int | None:
        """Return the exit status once there is nothing left to wait for, otherwise None."""
        now = time.monotonic()
        if self.attempts.live_count:
            if now >= self.grace_until:
                self.force("grace_period")
            if now < self.give_up_at:
                return None
        elif self.give_up_at == NEVER:
            self.grace_until, self.give_up_at = NEVER, max(self.grace_until, now + LAST_ANSWERS_TIMEOUT)
            self.save_unanswered()  # now, because a supervisor may kill this process before the end
        if self.outbox or self.claims_until == NEVER:
            self.claims_until = now + LAST_ANSWERS_TIMEOUT  # do not wait longer for a claim that is under way
        is_claiming = self.transport.is_claiming
        if (self.outbox or (is_claiming and now < self.claims_until)) and now < self.give_up_at:
            return None
        has_unsent = bool(self.outbox) or is_claiming
        log.info(f"Deregistering worker ID: {self.server.id}", why=self.reason, unsent_reports=len(self.outbox))
        # The control plane gives away the jobs of an ended server at once. So send no last heartbeat while reports are
        # left.
        self.is_answered = not (self.attempts.live_count or self.outbox) and self._send_last_heartbeat()
        is_graceful = self.reason in ("SIGTERM", "SIGINT") and not self.is_forced
        return 0 if self.is_answered and is_graceful and not has_unsent else 1

    def _send_last_heartbeat(self) -> bool:
        client = self.server.client
        client.timeout = min(client.timeout, LAST_ANSWERS_TIMEOUT / 2)
        self.heart.stop()
        self.heart.join(client.timeout)  # its heartbeat must not come after the last one
        now = time.monotonic()
        until = max(now + 1, min(now + LAST_ANSWERS_TIMEOUT, self.give_up_at))
        try:
            return self.server.send_last_heartbeat(
                "TERMINATED_FORCED" if self.is_forced else "TERMINATED_GRACEFULLY", until
            )
        except Refused as refused:
            log.warning("Last heartbeat refused", code=refused.code, detail=refused.detail)
            return False
