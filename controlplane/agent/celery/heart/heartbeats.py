"""The heart's connection to the control plane: registration, heartbeats, and reports of tasks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

import structlog

from controlplane.agent.api.backoff import full_jitter
from controlplane.agent.api.client import AgentClient, Refused, Unreachable
from controlplane.agent.api.heartbeat_thread import HeartbeatThread, HeldAttempts
from controlplane.agent.api.outage import Outage
from controlplane.agent.api.registration import REGISTRATION_CAP, RegisteredServer, register_once
from controlplane.agent.celery.heart.claims import CeleryClaims
from controlplane.agent.celery.heart.fast_recovery import HeartRecovery
from controlplane.agent.celery.heart.fence import TwoWitnesses
from controlplane.agent.celery.heart.rescue import Rescue
from controlplane.agent.celery.heart.task_records import TaskRecords
from controlplane.agent.celery.messages import Consume, Greeting, HoldQueues, Order, Revoke, ShutDown
from controlplane.agent.fitness import status_file
from controlplane.agent.processes.process_metrics import MachineMetrics

log = structlog.get_logger()
LAST_WITHIN = 5.0  # seconds to wait for the response to the last heartbeat
ASK_EVERY = 10.0  # seconds between two heartbeats with an empty field `holders`, because the field costs a query
REFUSED_PAUSE = 30.0  # seconds until the next try after a refused registration


class WorkerConnection(threading.Thread):
    """Registration and heartbeats of one worker, until `end`.

    `lost(reason)` is called if the control plane gave the worker's tasks to others. `order` sends an order to the
    worker's main process. `fenced` is called if the fence has passed when a heartbeat is due. `is_stopped` returns True
    while the main process is frozen; then no heartbeat is sent. `problem` returns the reason why the worker is stuck,
    or None.
    """

    def __init__(
        self,
        greeting: Greeting,
        fence: TwoWitnesses,
        records: TaskRecords,
        rescue: Rescue,
        claims: CeleryClaims | None,
        recovery: HeartRecovery,
        *,
        lost: Callable[[str], None],
        order: Callable[[Order], None],
        fenced: Callable[[], None],
        is_stopped: Callable[[], bool],
        problem: Callable[[], str | None],
    ) -> None:
        super().__init__(name="heartbeats", daemon=True)
        self._greeting, self.fence, self._records, self.rescue = greeting, fence, records, rescue
        self.claims, self._recovery = claims, recovery
        self.fenced, self.is_stopped = fenced, is_stopped
        self._lost, self._order, self._problem = lost, order, problem
        self._client = AgentClient(greeting.url)
        self._state = "RUNNING"
        self._ended = threading.Event()
        self._asks = True  # ask about lost holders; False if an older control plane refuses the field
        self._asked_at = 0.0
        self._takes_records = True
        self._recording = threading.Lock()
        self.consumes = True
        self._last_orders: dict[type, Order] = {}  # empty in a new heart, whose worker may have old orders
        self.is_running = False  # the control plane has this worker as RUNNING; no job is claimed before
        self.server: RegisteredServer | None = None
        self.heartbeats: WorkerHeartbeats | None = None
        self.drain_at: float | None = None  # wall clock

    def report_state(self, state: str) -> None:
        self._state = state
        if self.heartbeats:
            self.heartbeats.report_state(state)
        if state == "TERMINATING" and self.server and (after := self.server.config.last_fence_seconds) is not None:
            self.fence.shorten_deadline(after)

    def run(self) -> None:
        while not self._ended.is_set():
            if not (server := self._register()):
                continue
            self.server = server
            self._client.timeout = max(0.5, min(10.0, server.config.timeout / 4))
            log.info(f"Worker registered with ID: {server.id}", name=self._greeting.name)
            self._recovery.name_file(server)
            self.fence.renew_deadline(server.registered_at, server.fence_after)
            self.heartbeats = WorkerHeartbeats(self, server, state=self._state)
            self.is_running = False
            if self.claims:
                self.claims.serve(server, self.heartbeats.act_now)
            self.heartbeats.run()

    def _register(self) -> RegisteredServer | None:
        failures, outage = 0, Outage(self._client.base)
        while not self._ended.is_set():
            try:
                with outage.watching("register"):
                    return register_once(
                        self._client, self._greeting.token, self._greeting.description, self._greeting.instance
                    )
            except Unreachable as error:
                failures += 1
                pause = min(REGISTRATION_CAP, (error.retry_after or 0) + full_jitter(failures, REGISTRATION_CAP))
            except Refused as refused:
                if refused.code == "server_not_running":
                    self._lost("the control plane declared it dead while it could not register")
                    return None
                # A refusal without a code is not from the control plane, for example from a proxy.
                pause = REFUSED_PAUSE if refused.code else REGISTRATION_CAP
                log.error("Registration refused: this worker is not protected", why=str(refused), errors=refused.errors)
            self._ended.wait(pause)
        return None

    def body(self) -> dict[str, Any]:
        """Return the fields that the protection adds to a heartbeat."""
        counts: dict[str, Any] = {**self._records.counts(), **self._recovery.metrics()}
        body: dict[str, Any] = {"metrics": counts}
        if self._asks:
            now = time.monotonic()
            if (holders := self.rescue.ask()) or now - self._asked_at >= ASK_EVERY:
                body["holders"], self._asked_at = holders, now
        if problem := self._problem():
            counts["stuck"] = problem
        if self._greeting.when_stuck == "cordon":
            body |= {"schedulable": False, "reason": problem} if problem else {"schedulable": True}
        return body

    def on_answer(self, heartbeats: WorkerHeartbeats, answer: dict[str, Any] | Refused) -> None:
        """Carry out the instructions in the answer to a heartbeat."""
        if isinstance(answer, Refused):
            return self._on_refusal(heartbeats, answer)
        server = heartbeats.server
        if self._asks:
            self.rescue.record_answer(answer, 2 * server.config.timeout + 60)
        self._revoke(answer)
        if self.claims:
            self.claims.cancel(list(map(str, answer.get("cancel") or ())))
            self.claims.lose(list(map(str, answer.get("lost") or ())))
        self.is_running = True
        drain, maintenance = answer.get("drain"), bool(answer.get("maintenance"))
        deadline = (drain or {}).get("deadline")
        self.drain_at = datetime.fromisoformat(deadline).timestamp() - self._client.clock_offset if deadline else None
        self.consumes = not (maintenance or drain or answer.get("cordoned"))
        self._order_if_new(Consume(self.consumes))
        if "held_queues" in answer:
            self._order(HoldQueues(answer["held_queues"]))  # also if it is the same, because an order may have failed
        if self._state in ("RUNNING", "MAINTENANCE"):
            self._state = "MAINTENANCE" if maintenance else "RUNNING"
            heartbeats.report_state(self._state)
        try:
            status_file.write_status(
                self._greeting.name, server.id, str(answer.get("state")), server.config.timeout,
                self.fence.clock(), self._problem(),
            )  # fmt: skip
        except OSError as error:
            log.warning("Status file not written, so --check will fail", why=str(error))

    def _order_if_new(self, order: Order) -> None:
        if self._last_orders.get(type(order)) != order:
            self._order(order)
            self._last_orders[type(order)] = order

    def _revoke(self, answer: dict[str, Any]) -> None:
        for task in self._records.ids_of(set(map(str, answer.get("cancel") or ()))):
            self._order(Revoke(task))

    def repeat_orders(self) -> None:
        """Send the order to stop consuming again, because the worker consumes its queues after each reconnection."""
        if not self.consumes:
            self._order(Consume(is_on=False))

    def _on_refusal(self, heartbeats: WorkerHeartbeats, refused: Refused) -> None:
        if refused.status == 400 and self._asks and "holders" in (refused.errors or {}):
            log.warning("This control plane does not report lost workers, so the tasks of a lost host are not returned")
            self._asks = False
            heartbeats.act_now()
        elif refused.code == "server_unknown":
            heartbeats.stop()  # the control plane has deleted the server; the same instance registers again
        elif refused.code == "server_not_running" or (
            refused.code == "server_disconnected"
            and heartbeats.server.config.worker_task_restart_strategy == "IMMEDIATELY"
        ):
            self._lost(refused.code)
        elif refused.code == "server_disconnected" and self._state != "TERMINATING":
            self._order(ShutDown())

    def end(self, state: str, within: float = LAST_WITHIN) -> bool:
        """Stop the heartbeats, then report `state`. Return True if the report was answered.

        Call it from another thread.
        """
        self._ended.set()
        if not (self.server and self.heartbeats):
            return False
        self.heartbeats.stop()
        self.join(self._client.timeout + 0.5)  # because no heartbeat may follow the last one
        status_file.remove_status(self._greeting.name)
        try:
            return self.server.send_last_heartbeat(state, time.monotonic() + within)
        except Refused as refused:
            log.warning("Last heartbeat refused", code=refused.code, detail=refused.detail)
            return True

    def record(self) -> bool:
        """Report new task records. Return True if there may be more.

        While the control plane cannot be reached, they wait.
        """
        with self._recording:
            if not (self._takes_records and self.server and (body := self._records.next_batch())):
                return False
            again: set[str] = set()
            try:
                self._revoke(answer := self.server.post("tasks", body))
                again.update(map(str, answer.get("again") or ()))
            except Unreachable:
                self._records.take_back()
                return False
            except Refused as refused:
                if refused.code in ("not_found", "method_not_allowed"):
                    log.warning("This control plane takes no records of tasks")
                    self._takes_records = False
                else:
                    log.error("Records of tasks refused", why=str(refused), errors=refused.errors)
            self._records.confirm(again)
            return len(body["tasks"]) > len(again)


class WorkerHeartbeats(HeartbeatThread):
    """Heartbeats of one registration. They run in the thread of `WorkerConnection`."""

    def __init__(self, connection: WorkerConnection, server: RegisteredServer, state: str) -> None:
        self._connection = connection
        super().__init__(
            server,
            connection.fence,
            list_held_attempts=connection.claims.list_held if connection.claims else HeldAttempts,
            metrics=MachineMetrics().read,
            on_answer=lambda answer: connection.on_answer(self, answer),
            on_fenced=connection.fenced,
            state=state,
        )

    def send_heartbeat(self) -> float:
        """Send a heartbeat, unless the worker's main process is frozen. Return the seconds until the next."""
        if self._connection.is_stopped():
            return min(0.5, self.interval)
        return super().send_heartbeat()

    def _build_body(self, now: float) -> dict[str, Any]:
        body, added = super()._build_body(now), self._connection.body()
        return body | added | {"metrics": body["metrics"] | added["metrics"]}

    def _record_miss(self, error: Unreachable, took: float) -> float:
        self._connection.rescue.forget_unknown()
        return super()._record_miss(error, took)
