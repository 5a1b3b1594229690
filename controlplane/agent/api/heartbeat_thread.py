"""The thread that sends heartbeats, receives instructions and enforces the fence."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import structlog

from controlplane.agent.api.backoff import full_jitter
from controlplane.agent.api.client import ENDS_WORK, Refused, Unreachable
from controlplane.agent.api.registration import RegisteredServer
from controlplane.agent.fence import Fence
from controlplane.agent.fitness.self_cordon import SelfCordon

log = structlog.get_logger()


@dataclass(frozen=True)
class HeldAttempts:
    """The attempts that the next heartbeat of this server lists.

    `claimed` are ids. `running` are `{attempt, pid}`. `silent` ones run too, but their code gives no sign of life.
    `stopped` are ids of lost attempts whose code no longer runs: the control plane can now run their jobs elsewhere.
    """

    claimed: list[str] = field(default_factory=list)
    running: list[dict[str, Any]] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    silent: list[dict[str, Any]] = field(default_factory=list)


class HeartbeatThread(threading.Thread):
    """Send a heartbeat every interval. No claim, report or job can delay it, because it has its own thread.

    `on_answer` gets each response, or the Refused. `on_fenced` is called first when the fence has passed. This thread
    calls both. `list_held_attempts` and `metrics` are called for each heartbeat.
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
        """Send `state` from now on, starting with a heartbeat at once."""
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
            except Exception:  # an unexpected response must not end this thread: a silent server is a dead server
                with suppress(Exception):
                    log.exception("Heartbeat failed")
                pause = self.interval
            self._woken.wait(pause)
            self._woken.clear()

    def send_heartbeat(self) -> float:
        """Send one heartbeat and return the seconds until the next."""
        # This process may have been stopped or suspended for an hour: its attempts may run elsewhere now.
        if self.fence.has_passed():
            self._on_fenced()
        clock = self.fence.clock
        started, schedulable = clock(), self._cordon.fields
        try:
            answer = self.server.send_heartbeat({**self._build_body(started), **schedulable})
        except Unreachable as error:
            if error.code == "token_unknown":
                self._renew_token()
            return self._record_miss(error, clock() - started)
        except Refused as refused:
            log.warning("Heartbeat refused", status=refused.status, code=refused.code, detail=refused.detail)
            self._on_answer(refused)
            return self.interval
        # The deadline may have passed since the first check. Check again, because renewing it would hide that.
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

    def _renew_token(self) -> None:
        try:
            self.server.renew_token()
        except Unreachable as error:
            log.debug("No new token", why=str(error))
        except Refused as refused:
            log.warning("No new token", status=refused.status, code=refused.code, detail=refused.detail)
            if refused.code in ENDS_WORK:
                self._on_answer(refused)

    def _build_body(self, now: float) -> dict[str, Any]:
        held = self._list_held_attempts()
        # Always send `stopped`. The control plane takes a heartbeat without it as "all have stopped", but the response
        # that listed the lost attempts may not have arrived.
        body: dict[str, Any] = {"state": self._state, "metrics": self._metrics(), "stopped": held.stopped}
        if held.claimed and now >= self._claimer_due:
            body["claimed"] = held.claimed
            self._claimer_due = now + self.server.config.claimer_heartbeat_interval
        # Silent code is not listed, so that it goes stale on the control plane. It is listed after a failure: the next
        # heartbeat may reactivate this server, and attempts that are not listed then count as ended.
        running = [*held.running, *held.silent] if self._failures else held.running
        # After a failure even no attempts are listed, because the database may have been replaced in the meantime.
        if (running or self._failures) and now >= self._runner_due:
            body["running"] = running
            self._runner_due = now + self.server.config.runner_heartbeat_interval
        return body

    def _metrics(self) -> dict[str, Any]:
        try:
            return self._read_metrics()
        except Exception as error:  # for example when no file descriptors are left
            with suppress(Exception):
                log.warning("Metrics not read", why=str(error))
            return {}

    def _record_miss(self, error: Unreachable, took: float) -> float:
        self._failures += 1
        # The next heartbeat may reactivate this server. Then only the listed attempts survive, so list them all.
        self._claimer_due = self._runner_due = 0.0
        cap = max(0.0, self.server.config.heartbeat_retry_window - took)
        return min(cap, (error.retry_after or 0) + full_jitter(self._failures, cap))
