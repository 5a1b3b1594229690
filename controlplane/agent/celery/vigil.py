"""The heart's side towards the broker: the second witness, the rescue of others, the worker's own end."""

from __future__ import annotations

import threading
from typing import Any, Protocol

import structlog

from controlplane.agent.celery import keys
from controlplane.agent.celery.fence import TwoWitnesses
from controlplane.agent.celery.holdings import Holdings
from controlplane.agent.celery.ledger import Ledger
from controlplane.agent.celery.rescue import Rescue, count_by_outcome
from controlplane.agent.celery.resending import Resending
from controlplane.agent.celery.restoring import Loss, Outcome, Returned, quarantine_text
from controlplane.agent.fence import read_uptime

log = structlog.get_logger()
WITNESS_EVERY = 1.0  # seconds
WITNESS_SOON = 0.25  # seconds, while the control plane is silent or something is due
SWEEP_EVERY = 60.0  # seconds
SHARED_VISIBILITY = 3600.0  # seconds: kombu's default


class Worker(Protocol):
    """What a vigil asks of the heart."""

    instance: str

    def main_is_stopped(self) -> bool: ...
    def stop_code(self, reason: str) -> None: ...
    def enforce_fence(self) -> None: ...
    def order(self, order: dict[str, Any]) -> None: ...
    def progress(self) -> tuple[dict[str, Any], float]: ...


class Vigil(threading.Thread):
    """Looks at the broker every now and then."""

    rescue: Rescue | Resending  # what the heartbeats ask for
    problem: str | None = None

    def __init__(self, hello: dict[str, Any], fence: TwoWitnesses, ledger: Ledger, worker: Worker) -> None:
        super().__init__(name="vigil", daemon=True)
        self._hello, self._fence, self._ledger, self._worker = hello, fence, ledger, worker
        self._stopped = threading.Event()

    def run(self) -> None:
        pause = 0.0
        while not self._stopped.wait(pause):
            self._worker.enforce_fence()  # before anything may move it on
            pause = WITNESS_EVERY
            if self._worker.main_is_stopped():
                continue
            try:
                pause = self.look()
            except Exception:
                log.exception("Broker not looked at")

    def stop(self) -> None:
        self._stopped.set()
        self.join(10)

    def look(self) -> float:
        """Once; seconds until the next."""
        raise NotImplementedError

    def give_back_own(self, running: set[str] | None, reason: str) -> bool:
        """What the worker that has ended held; False: to be tried again."""
        self._end_rest(running, reason)
        return True

    def _end_rest(self, running: set[str] | None, reason: str) -> None:
        for tag in self._ledger.held():
            outcome = "LOST" if running is None or tag in running else "RETURNED"
            self._ledger.end(tag, outcome, f"WORKER_CRASHED: {reason}; redelivered by the broker")

    def reported(self, task: str) -> None:
        pass


class RabbitVigil(Vigil):
    """RabbitMQ redelivers by itself once it misses the worker's heartbeats; its code must have stopped by then."""

    def __init__(self, hello: dict[str, Any], fence: TwoWitnesses, ledger: Ledger, worker: Worker) -> None:
        super().__init__(hello, fence, ledger, worker)
        self.rescue = Resending(hello["connection"], ledger)

    def look(self) -> float:
        if heartbeat := self._hello["broker_heartbeat"]:
            self._fence.unmarked(read_uptime() + 0.8 * heartbeat - self._hello["options"]["condemned_for"])
        else:
            self._fence.unmarked(read_uptime() + keys.NEVER)
        _, silent_for = self._worker.progress()
        stuck_after = self._hello["options"]["stuck_after"]
        self.problem = f"its main loop is silent for {silent_for:.0f} s" if silent_for > stuck_after else None
        return WITNESS_EVERY


class RedisVigil(Vigil):
    def __init__(self, hello: dict[str, Any], fence: TwoWitnesses, ledger: Ledger, worker: Worker) -> None:
        super().__init__(hello, fence, ledger, worker)
        options = hello["options"]
        self._holdings = Holdings(hello["connection"], hello["exchanges"])
        self._own = Holdings(hello["connection"], hello["exchanges"])  # of the main thread, at the end
        self._limit: int = options["max_resubmissions"]
        self.rescue: Rescue = Rescue(worker.instance, self._holdings, options["condemned_for"], self._limit)
        self._stuck_after: float = options["stuck_after"]
        self._received = -1
        self._deaf: str | None = None
        self._received_at = read_uptime()
        self._next_turn = self._next_sweep = 0.0
        self._reported: list[str] = []
        self._reachable = True

    def look(self) -> float:
        started = read_uptime()
        try:
            if self._holdings.is_condemned(self._worker.instance):
                self._worker.stop_code("its messages are about to be given to others")
                return WITNESS_EVERY
            self._worker.enforce_fence()  # the answer may have taken long
            self._fence.unmarked(started)
            if started >= self._next_turn or self.rescue.waiting():
                self._next_turn = started + self._hello["every"]
                self._turn()
        except self._holdings.errors as error:
            if self._reachable:
                log.warning("Broker unreachable", why=str(error))
            self._reachable = False
            self._holdings.close()
            return WITNESS_SOON
        self._reachable = True
        urgent = self.rescue.waiting() or (self._fence.remaining_seconds() or WITNESS_EVERY) < 5 * WITNESS_EVERY
        return WITNESS_SOON if urgent else WITNESS_EVERY

    def _turn(self) -> None:
        self.rescue.run_once()
        for task in self.rescue.to_send():
            # Another sees to it, or it lies with the broker of another application, where this one has none of that id.
            if self._holdings.send_again(task):
                log.warning("Sent again out of quarantine", task=task)
                self._ledger.note("SENT", task, "?", "")
        now = read_uptime()
        if now >= self._next_sweep:
            self._next_sweep = now + SWEEP_EVERY
            self._holdings.sweep_shared(self._hello["visibility_timeout"] or SHARED_VISIBILITY)
        while self._reported:
            self._holdings.reported(self._reported[-1])
            self._reported.pop()
        for task in self._holdings.unreported():
            if entry := self._holdings.take_unreported(task, self._worker.instance):
                text = quarantine_text(str(entry["name"]), entry["losses"], entry["reason"])
                self._ledger.note("QUARANTINED", task, str(entry["name"]), str(entry["routing_key"]), text)
                self._worker.order({"order": "fail", "task": task, "text": text, "message": entry["message"]})
        self._look_whether_stuck(now)

    def _look_whether_stuck(self, now: float) -> None:
        """Once it is, only a message that it receives tells otherwise: cordoned for it, it could not receive any."""
        progress, silent_for = self._worker.progress()
        received, problem = progress.get("received", -1), None
        if received != self._received:
            self._received, self._received_at, self._deaf = received, now, None
        elif not progress.get("takes"):
            self._received_at = now
        idle_for = now - self._received_at
        if silent_for > self._stuck_after:
            problem = f"its main loop is silent for {silent_for:.0f} s"
        elif idle_for > self._stuck_after and (waiting := self._holdings.lengths(progress["queues"])):
            self._deaf = f"it received nothing for {idle_for:.0f} s, with room for more and {waiting} messages waiting"
        problem = problem or self._deaf
        if problem and not self.problem:
            log.error("This worker is stuck", why=problem)
        self.problem = problem

    def give_back_own(self, running: set[str] | None, reason: str) -> bool:
        loss = Loss(self._worker.instance, reason, self._limit)

        def lost(tag: str, what: Returned) -> None:
            if what.outcome is Outcome.QUARANTINED:
                self._ledger.end(tag, "QUARANTINED", f"WORKER_CRASHED: {reason}; quarantined")
            elif what.outcome is not Outcome.GONE:
                outcome = "LOST" if running is None or tag in running else "RETURNED"
                self._ledger.end(tag, outcome, f"WORKER_CRASHED: {reason}; {what.outcome.name.lower()}")

        try:
            outcomes = self._own.give_back_all(self._worker.instance, loss, running, lost)
            self._own.leave(self._worker.instance)
        except self._own.errors as error:
            log.warning("Broker unreachable: messages not given back yet", why=str(error))
            self._own.close()
            return False
        if outcomes:
            log.warning("Messages given back", **count_by_outcome(outcomes))
        self._end_rest(running, reason)
        return True

    def reported(self, task: str) -> None:
        self._reported.append(task)
