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
from controlplane.agent.probe import SelfCordon
from controlplane.agent.registration import RegisteredServer

log = structlog.get_logger()


@dataclass(frozen=True)
class HeldAttempts:
    """The attempts this server holds: ids that are claimed, `{attempt, pid}` for those that run; `silent` ones run too,
    but their code gives no sign of life. And those that it was told it lost and of which nothing runs any more: their
    jobs go on elsewhere as soon as it says so."""

    claimed: list[str] = field(default_factory=list)
    running: list[dict[str, Any]] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    silent: list[dict[str, Any]] = field(default_factory=list)


class HeartbeatThread(threading.Thread):
    """Beats every interval from its own thread, so that no claim, report or job can delay it.

    `on_answer` gets each answer, or the Refused; `on_fenced` is called, before anything else is done, when the
    fence has passed. Both are called in this thread. `list_held_attempts` and `metrics` are read at each beat.
    """

    def __init__(
        self,
        server: RegisteredServer,
        fence: Fence,
        *,
        list_held_attempts: Callable[[], HeldAttempts],
        metrics: Callable[[], dict[str, Any]],
        on_answer: Callable[[dict[str, Any] | Refused], None],
        on_fenced: Callable[[], None],
        state: str = "RUNNING",
        cordon: SelfCordon | None = None,
    ) -> None:
        super().__init__(name="heart", daemon=True)
        self.server, self.fence = server, fence
        self.interval = server.config.heartbeat_interval
        self._list_held_attempts, self._read_metrics, self._on_answer, self._on_fenced = (
            list_held_attempts,
            metrics,
            on_answer,
            on_fenced,
        )
        self._state = state
        self._cordon = cordon or SelfCordon()
        self._woken = threading.Event()
        self._is_stopped = False
        self._failures = 0
        self._claimer_due = self._runner_due = 0.0

    def report_state(self, state: str) -> None:
        """Report `state` from now on, beginning at once."""
        if state != self._state:
            self._state = state
            self._woken.set()

    def act_now(self) -> None:
        self._woken.set()

    def stop(self) -> None:
        self._is_stopped = True
        self._woken.set()

    def run(self) -> None:
        while not self._is_stopped:
            try:
                pause = self.send_heartbeat()
            except Exception:  # an answer nobody foresaw must not silence us: a silent server is a dead one
                log.exception("Heartbeat failed")
                pause = self.interval
            self._woken.wait(pause)
            self._woken.clear()

    def send_heartbeat(self) -> float:
        """One beat; returns the seconds until the next."""
        # We may have been stopped or asleep for an hour: what was ours then is not ours now.
        if self.fence.has_passed():
            self._on_fenced()
        clock = self.fence.clock
        started, schedulable = clock(), self._cordon.fields
        try:
            answer = self.server.send_heartbeat({**self._build_body(started), **schedulable})
        except Unreachable as error:
            return self._record_miss(error, clock() - started)
        except Refused as refused:
            log.warning("Heartbeat refused", status=refused.status, code=refused.code, detail=refused.detail)
            self._on_answer(refused)
            return self.interval
        # The deadline may have gone by between the first check and the answer; moving it on would hide that.
        if self.fence.has_passed():
            self._on_fenced()
        self.fence.renew_deadline(
            started, answer.get("fence_after_seconds"), lifts=answer.get("state") == "TERMINATING"
        )
        log.debug("Heartbeat sent successfully", server=self.server.id, state=answer.get("state"))
        self._failures = 0
        self._cordon.record_answer(schedulable)
        self.interval = float(answer.get("heartbeat_interval_seconds") or self.interval)
        self._on_answer(answer)
        return max(0.0, self.interval - (clock() - started))

    def _build_body(self, now: float) -> dict[str, Any]:
        held = self._list_held_attempts()
        # `stopped` always: without it the next heartbeat would count as "stopped", though the answer was lost.
        body: dict[str, Any] = {"state": self._state, "metrics": self._read_metrics(), "stopped": held.stopped}
        if held.claimed and now >= self._claimer_due:
            body["claimed"] = held.claimed
            self._claimer_due = now + self.server.config.claimer_heartbeat_interval
        # Code that hangs goes stale on the control plane. Only a beat that may bring us back lists it: what such a beat
        # does not list has ended here.
        running = [*held.running, *held.silent] if self._failures else held.running
        if running and now >= self._runner_due:
            body["running"] = running
            self._runner_due = now + self.server.config.runner_heartbeat_interval
        return body

    def _record_miss(self, error: Unreachable, took: float) -> float:
        self._failures += 1
        # A control plane that brings us back keeps only what the returning beat lists: list everything.
        self._claimer_due = self._runner_due = 0.0
        cap = max(0.0, self.server.config.heartbeat_retry_window - took)
        return min(cap, (error.retry_after or 0) + full_jitter(self._failures, cap))
