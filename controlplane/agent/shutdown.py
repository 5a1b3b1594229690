"""How a worker ends: its jobs have the grace period, then they are killed; reports have what is left of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from controlplane.agent.attempts import AttemptTracker
from controlplane.agent.client import Refused
from controlplane.agent.heart import HeartbeatThread
from controlplane.agent.outbox import Outbox
from controlplane.agent.registration import RegisteredServer
from controlplane.agent.transport import TransportThread

log = structlog.get_logger()
LAST_WORDS = 3.0  # seconds for the last answers once everything has ended; reports have the rest of the grace period
FORCED_PATIENCE = 1.0  # seconds from SIGTERM to SIGKILL when the grace period is over
NEVER = float("inf")


@dataclass
class Shutdown:
    """Main thread only. `save_unanswered`: keeps on disk what the control plane has not answered."""

    server: RegisteredServer
    heart: HeartbeatThread
    transport: TransportThread
    attempts: AttemptTracker
    outbox: Outbox
    save_unanswered: Callable[[], None]
    reason: str | None = None  # a signal's name, or the code of a refusal; None: the worker goes on
    is_forced: bool = False
    grace_until: float = NEVER  # these three are of the monotonic clock
    give_up_at: float = NEVER
    claims_until: float = NEVER

    @property
    def next_step_at(self) -> float:
        return min(self.grace_until, self.give_up_at)

    def start(self, reason: str) -> None:
        """Take nothing more, and begin nothing."""
        self.reason = reason
        self.grace_until = time.monotonic() + self.server.config.termination_grace_period
        self.transport.request_slots(0)
        self.attempts.block_starts("terminating")
        self.heart.report_state("TERMINATING")

    def force(self, reason: str) -> None:
        """Kill what is left."""
        if not self.is_forced:
            self.is_forced, self.grace_until = True, NEVER
            log.warning("Killing the jobs that are left", jobs=self.attempts.live_count, reason=reason)
            self.attempts.release_attempts(reason, FORCED_PATIENCE)
            self.give_up_at = time.monotonic() + (FORCED_PATIENCE + LAST_WORDS if self.attempts.live_count else 0)

    def advance(self) -> int | None:
        """The exit status, once there is nothing to wait for."""
        now = time.monotonic()
        if self.attempts.live_count:
            if now >= self.grace_until:
                self.force("grace_period")
            if now < self.give_up_at:
                return None
        elif self.give_up_at == NEVER:
            self.grace_until, self.give_up_at = NEVER, max(self.grace_until, now + LAST_WORDS)
            self.save_unanswered()  # now, for whoever waits for us may have less patience than we
        if self.outbox or self.claims_until == NEVER:
            self.claims_until = now + LAST_WORDS  # a claim under way is no reason to wait for longer
        is_claiming = self.transport.is_claiming
        if (self.outbox or (is_claiming and now < self.claims_until)) and now < self.give_up_at:
            return None
        has_unsent = bool(self.outbox) or is_claiming
        log.info(f"Deregistering worker ID: {self.server.id}", why=self.reason, unsent_reports=len(self.outbox))
        # Who has ended has its jobs given away at once: not while there is more to report of them.
        is_answered = not (self.attempts.live_count or self.outbox) and self._send_last_heartbeat()
        is_graceful = self.reason in ("SIGTERM", "SIGINT") and not self.is_forced
        return 0 if is_answered and is_graceful and not has_unsent else 1

    def _send_last_heartbeat(self) -> bool:
        client = self.server.client
        client.timeout = min(client.timeout, LAST_WORDS / 2)
        self.heart.stop()
        self.heart.join(client.timeout)  # its beat must not follow ours
        now = time.monotonic()
        until = max(now + 1, min(now + LAST_WORDS, self.give_up_at))
        try:
            return self.server.send_last_heartbeat(
                "TERMINATED_FORCED" if self.is_forced else "TERMINATED_GRACEFULLY", until
            )
        except Refused as refused:
            log.warning("Last heartbeat refused", code=refused.code, detail=refused.detail)
            return False
