"""The heartbeat thread: says what we are, hears what is wanted, and never trusts a stale permission."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import structlog

from controlplane.agent.backoff import full_jitter
from controlplane.agent.client import Refused, Unreachable
from controlplane.agent.fence import Fence
from controlplane.agent.registration import Server

log = structlog.get_logger()


@dataclass(frozen=True)
class Holdings:
    """The attempts this server holds: ids that are claimed, `{attempt, pid}` for those that run. And those that it was
    told it lost and of which nothing runs any more: their jobs go on elsewhere as soon as it says so."""

    claimed: list[str] = field(default_factory=list)
    running: list[dict[str, Any]] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)


class Heart(threading.Thread):
    """Beats every interval from its own thread, so that no claim, report or job can delay it.

    `hear` gets each answer, or the Refused; `fenced` is called, before anything else is done, when the
    fence has passed. Both are called in this thread. `holdings` and `metrics` are read at each beat.
    """

    def __init__(
        self,
        server: Server,
        fence: Fence,
        *,
        holdings: Callable[[], Holdings],
        metrics: Callable[[], dict[str, Any]],
        hear: Callable[[dict[str, Any] | Refused], None],
        fenced: Callable[[], None],
        state: str = "RUNNING",
    ) -> None:
        super().__init__(name="heart", daemon=True)
        self.server, self.fence = server, fence
        self.interval = server.config.heartbeat_interval
        self._holdings, self._metrics, self._hear, self._fenced = holdings, metrics, hear, fenced
        self._state = state
        self._nudged = threading.Event()
        self._stopped = False
        self._failures = 0
        self._claimer_due = self._runner_due = 0.0

    def say(self, state: str) -> None:
        """Report `state` from now on, beginning at once."""
        if state != self._state:
            self._state = state
            self._nudged.set()

    def nudge(self) -> None:
        self._nudged.set()

    def stop(self) -> None:
        self._stopped = True
        self._nudged.set()

    def run(self) -> None:
        while not self._stopped:
            try:
                pause = self.beat()
            except Exception:  # an answer nobody foresaw must not silence us: a silent server is a dead one
                log.exception("Heartbeat failed")
                pause = self.interval
            self._nudged.wait(pause)
            self._nudged.clear()

    def beat(self) -> float:
        """One beat; returns the seconds until the next."""
        # We may have been stopped or asleep for an hour: what was ours then is not ours now.
        if self.fence.passed():
            self._fenced()
        clock = self.fence.clock
        started = clock()
        try:
            answer = self.server.beat(self._body(started))
        except Unreachable as error:
            return self._missed(error, clock() - started)
        except Refused as refused:
            log.warning("Heartbeat refused", status=refused.status, code=refused.code, detail=refused.detail)
            self._hear(refused)
            return self.interval
        # The deadline may have gone by between the first check and the answer; moving it on would hide that.
        if self.fence.passed():
            self._fenced()
        self.fence.renew(started, answer.get("fence_after_seconds"), lifts=answer.get("state") == "TERMINATING")
        log.debug("Heartbeat sent successfully", server=self.server.id, state=answer.get("state"))
        self._failures = 0
        self.interval = float(answer.get("heartbeat_interval_seconds") or self.interval)
        self._hear(answer)
        return max(0.0, self.interval - (clock() - started))

    def _body(self, now: float) -> dict[str, Any]:
        holdings = self._holdings()
        # `stopped` always: without it the next heartbeat would count as "stopped", though the answer was lost.
        body: dict[str, Any] = {"state": self._state, "metrics": self._metrics(), "stopped": holdings.stopped}
        if holdings.claimed and now >= self._claimer_due:
            body["claimed"] = holdings.claimed
            self._claimer_due = now + self.server.config.claimer_heartbeat_interval
        if holdings.running and now >= self._runner_due:
            body["running"] = holdings.running
            self._runner_due = now + self.server.config.runner_heartbeat_interval
        return body

    def _missed(self, error: Unreachable, took: float) -> float:
        self._failures += 1
        # A control plane that brings us back keeps only what the returning beat lists: list everything.
        self._claimer_due = self._runner_due = 0.0
        cap = max(0.0, self.server.config.again_within - took)
        pause = min(cap, (error.retry_after or 0) + full_jitter(self._failures, cap))
        log.warning("Control plane unreachable", call="heartbeat", why=str(error), retry_in=round(pause, 2))
        return pause
