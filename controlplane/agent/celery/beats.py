"""The heart's side towards the control plane: registers for the worker, beats, hears, records."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

import structlog

from controlplane.agent import status_file
from controlplane.agent.backoff import full_jitter
from controlplane.agent.celery.claims import Claims
from controlplane.agent.celery.fence import TwoWitnesses
from controlplane.agent.celery.ledger import Ledger
from controlplane.agent.celery.rescue import Rescue
from controlplane.agent.celery.resending import Resending
from controlplane.agent.client import Client, Refused, Unreachable
from controlplane.agent.heart import HeartbeatThread, HeldAttempts
from controlplane.agent.outage import Outage
from controlplane.agent.registration import REGISTRATION_CAP, RegisteredServer, register_once

log = structlog.get_logger()
LAST_WORDS = 5.0  # seconds to be heard at the end
ASK_EVERY = 10.0  # seconds between two heartbeats that ask for holders where there are none: what asks, costs more
REFUSED_PAUSE = 30.0  # seconds until a refused registration is tried again: the worker works without


class Beats(threading.Thread):
    """One worker's registration and heartbeats, until `stop`.

    `lost(reason)`: the control plane gave our tasks away. `obey(order)`: for the worker's main process.
    `stopped()`: it is frozen, so nothing is said for it. `problem()`: why it is stuck, or None.
    """

    def __init__(
        self,
        hello: dict[str, Any],
        fence: TwoWitnesses,
        ledger: Ledger,
        rescue: Rescue | Resending,
        claims: Claims | None,
        *,
        lost: Callable[[str], None],
        obey: Callable[[dict[str, Any]], None],
        fenced: Callable[[], None],
        stopped: Callable[[], bool],
        problem: Callable[[], str | None],
    ) -> None:
        super().__init__(name="beats", daemon=True)
        self._hello, self._fence, self._ledger, self._rescue = hello, fence, ledger, rescue
        self.claims = claims
        self._lost, self._obey, self._fenced, self._stopped, self._problem = lost, obey, fenced, stopped, problem
        self._client = Client(hello["url"])
        self._state = "RUNNING"
        self._ended = threading.Event()
        self._asks = True  # for the lost among the holders: an older control plane refuses that
        self._asked_at = 0.0
        self._records = True
        self._recording = threading.Lock()
        self.consumes = True
        self.is_running = False  # as RUNNING: before, nothing is claimed
        self.server: RegisteredServer | None = None
        self.heart: Beating | None = None
        self.drain_at: float | None = None  # wall clock

    def report_state(self, state: str) -> None:
        self._state = state
        if self.heart:
            self.heart.report_state(state)
        if state == "TERMINATING" and self.server and (after := self.server.config.last_fence_seconds) is not None:
            self._fence.shorten_deadline(after)

    def run(self) -> None:
        while not self._ended.is_set():
            if not (server := self._register()):
                continue
            self.server = server
            self._client.timeout = max(0.5, min(10.0, server.config.timeout / 4))
            log.info(f"Worker registered with ID: {server.id}", name=self._hello["name"])
            self._fence.renew_deadline(server.registered_at, server.fence_after)
            self.heart = Beating(self, server, state=self._state)
            self.is_running = False
            if self.claims:
                self.claims.serve(server, self.heart.act_now)
            self.heart.run()

    def _register(self) -> RegisteredServer | None:
        failures, outage = 0, Outage()
        while not self._ended.is_set():
            try:
                with outage.watching("register"):
                    return register_once(
                        self._client, self._hello["token"], self._hello["description"], self._hello["instance"]
                    )
            except Unreachable as error:
                failures += 1
                pause = min(REGISTRATION_CAP, (error.retry_after or 0) + full_jitter(failures, REGISTRATION_CAP))
            except Refused as refused:
                if refused.code == "server_not_running":
                    self._lost("declared dead while it was not heard")
                    return None
                pause = REFUSED_PAUSE
                log.error("Registration refused: this worker is not protected", why=str(refused), errors=refused.errors)
            self._ended.wait(pause)
        return None

    def body(self) -> dict[str, Any]:
        """What a heartbeat of ours says beside the state."""
        counts: dict[str, Any] = dict(self._ledger.counts())
        body: dict[str, Any] = {"metrics": counts}
        if self._asks:
            now = time.monotonic()
            if (holders := self._rescue.ask()) or now - self._asked_at >= ASK_EVERY:
                body["holders"], self._asked_at = holders, now
        if problem := self._problem():
            counts["stuck"] = problem
        if self._hello["options"]["when_stuck"] == "cordon":
            body |= {"schedulable": False, "reason": problem} if problem else {"schedulable": True}
        return body

    def is_stopped(self) -> bool:
        return self._stopped()

    def hear(self, heart: Beating, answer: dict[str, Any] | Refused) -> None:
        if isinstance(answer, Refused):
            return self._on_refusal(heart, answer)
        server = heart.server
        if self._asks:
            self._rescue.hear(answer, 2 * server.config.timeout + 60)
        self._revoke(answer)
        if self.claims:
            self.claims.cancel(list(map(str, answer.get("cancel") or ())))
            self.claims.lose(list(map(str, answer.get("lost") or ())))
        self.is_running = True
        drain, maintenance = answer.get("drain"), bool(answer.get("maintenance"))
        deadline = (drain or {}).get("deadline")
        self.drain_at = datetime.fromisoformat(deadline).timestamp() - self._client.clock_offset if deadline else None
        consumes = not (maintenance or drain or answer.get("cordoned"))
        if consumes != self.consumes:
            self._obey({"order": "consume", "on": consumes})
            self.consumes = consumes
        if self._state in ("RUNNING", "MAINTENANCE"):
            self._state = "MAINTENANCE" if maintenance else "RUNNING"
            heart.report_state(self._state)
        try:
            status_file.write_status(
                self._hello["name"], server.id, str(answer.get("state")), server.config.timeout,
                self._fence.clock(), self._problem(),
            )  # fmt: skip
        except OSError as error:
            log.warning("Status file not written: --check will fail", why=str(error))

    def _revoke(self, answer: dict[str, Any]) -> None:
        for task in self._ledger.ids_of(set(map(str, answer.get("cancel") or ()))):
            self._obey({"order": "revoke", "task": task})

    def repeat_orders(self) -> None:
        """The worker's main process is connected anew, and consumes."""
        if not self.consumes:
            self._obey({"order": "consume", "on": False})

    def _on_refusal(self, heart: Beating, refused: Refused) -> None:
        if refused.status == 400 and self._asks and "holders" in (refused.errors or {}):
            log.warning("This control plane does not tell who is lost: the tasks of a lost host stay where they are")
            self._asks = False
            heart.act_now()
        elif refused.status == 410:
            heart.stop()  # forgotten: the same instance registers again
        elif refused.code == "server_not_running" or (
            refused.code == "server_disconnected" and heart.server.config.worker_task_restart_strategy == "IMMEDIATELY"
        ):
            self._lost(refused.code)
        elif refused.code == "server_disconnected" and self._state != "TERMINATING":
            self._obey({"order": "shutdown"})

    def end(self, state: str, within: float = LAST_WORDS) -> bool:
        """Beat no more, then report `state`; True when that was answered. Any thread but this one."""
        self._ended.set()
        if not (self.server and self.heart):
            return False
        self.heart.stop()
        self.join(self._client.timeout + 0.5)  # its beat must not follow ours
        status_file.remove_status(self._hello["name"])
        try:
            return self.server.send_last_heartbeat(state, time.monotonic() + within)
        except Refused as refused:
            log.warning("Last heartbeat refused", code=refused.code, detail=refused.detail)
            return True

    def record(self) -> bool:
        """Report what is new of the tasks; whether there may be more. Nothing is lost while the control plane is away,
        but for room."""
        with self._recording:
            if not (self._records and self.server and (body := self._ledger.next_batch())):
                return False
            try:
                self._revoke(self.server.post("tasks", body))
            except Unreachable:
                self._ledger.take_back()
                return False
            except Refused as refused:
                if refused.status in (404, 405):
                    log.warning("This control plane takes no records of tasks")
                    self._records = False
                else:
                    log.error("Records of tasks refused", why=str(refused), errors=refused.errors)
            self._ledger.confirm()
            return len(body["tasks"]) > 0


class Beating(HeartbeatThread):
    """The heart's thread body, run in that of `Beats`."""

    def __init__(self, beats: Beats, server: RegisteredServer, state: str) -> None:
        self._beats = beats
        super().__init__(
            server,
            beats._fence,
            list_held_attempts=beats.claims.list_held if beats.claims else HeldAttempts,
            metrics=dict,
            on_answer=lambda answer: beats.hear(self, answer),
            on_fenced=beats._fenced,
            state=state,
        )

    def send_heartbeat(self) -> float:
        if self._beats.is_stopped():
            return min(0.5, self.interval)
        return super().send_heartbeat()

    def _build_body(self, now: float) -> dict[str, Any]:
        return super()._build_body(now) | self._beats.body()

    def _record_miss(self, error: Unreachable, took: float) -> float:
        self._beats._rescue.unheard()
        return super()._record_miss(error, took)
