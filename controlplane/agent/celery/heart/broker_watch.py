"""The heart's watch on the broker.

It looks for a mark, rescues messages of other workers, and returns messages of its own.
"""

from __future__ import annotations

import threading
from typing import Protocol

import structlog

from controlplane.agent.celery.broker.access import explain
from controlplane.agent.celery.broker.restoring import Outcome, Returned
from controlplane.agent.celery.heart.fence import TwoWitnesses
from controlplane.agent.celery.heart.rescue import Rescue
from controlplane.agent.celery.heart.task_records import TaskRecords
from controlplane.agent.celery.messages import FailureStored, Greeting, LoopProgress, Order
from controlplane.agent.fence import read_uptime

log = structlog.get_logger()
LOOK_EVERY = 1.0  # seconds
LOOK_SOON = 0.25  # seconds, while the control plane is silent or a rescue waits


class WatchedWorker(Protocol):
    """Interface of the worker for the watch. The heart process implements it."""

    instance: str

    def main_is_stopped(self) -> bool: ...
    def stop_code(self, reason: str) -> None: ...
    def enforce_fence(self) -> None: ...
    def order(self, order: Order) -> None: ...
    def progress(self) -> tuple[LoopProgress, float]: ...


class BrokerWatch(threading.Thread):
    """Thread that polls the broker. With brokers other than Redis and RabbitMQ it only records that the heart runs."""

    rescue: Rescue  # heartbeats ask the control plane about the holders of the rescue
    problem: str | None = None  # reason why the worker is stuck

    def __init__(self, greeting: Greeting, fence: TwoWitnesses, records: TaskRecords, worker: WatchedWorker) -> None:
        super().__init__(name="broker-watch", daemon=True)
        self._greeting, self._fence, self._records, self._worker = greeting, fence, records, worker
        self._stopped = threading.Event()
        self._logged_error: str | None = None  # the reason why the broker could not be reached
        self._received = -1
        self._received_at = read_uptime()
        self._receive_problem: str | None = None

    def run(self) -> None:
        pause = 0.0
        while not self._stopped.wait(pause):
            self._worker.enforce_fence()  # started before anything can move the deadline
            pause = LOOK_EVERY
            if self._worker.main_is_stopped():
                continue
            try:
                pause = self.look()
            except Exception:
                log.exception("The look at the broker failed")

    def stop(self) -> None:
        self._stopped.set()
        self.join(10)

    def look(self) -> float:
        """Look at the broker once. Return the seconds until the next look."""
        raise NotImplementedError

    def count_waiting(self, queues: list[str]) -> int:
        """Return the number of messages in these queues."""
        return 0

    def record_stored(self, stored: FailureStored) -> None:
        """Record that the worker stored the failure of a quarantined message."""

    def give_back_own(self, running: set[str] | None, reason: str) -> bool:
        """Return the messages of our ended worker to their queues. Return False if this must be tried again.

        `running` are the tags of tasks whose code ran. None means that the code of any task may have run.
        """
        self._end_rest(running, reason)
        return True

    def _check_stuck(self, now: float) -> None:
        """Set `problem` if the worker is stuck.

        A worker that received nothing stays stuck until it receives a message, even while it is cordoned and can
        receive none.
        """
        progress, silent_for = self._worker.progress()
        problem = None
        if progress.received != self._received:
            self._received, self._received_at, self._receive_problem = progress.received, now, None
        elif not progress.takes:
            self._received_at = now
        idle_for, stuck_after = now - self._received_at, self._greeting.stuck_after
        if silent_for > stuck_after:
            problem = f"its main loop is silent for {silent_for:.0f} s"
        elif idle_for > stuck_after and progress.dead:
            self._receive_problem = (
                f"it received nothing for {idle_for:.0f} s: {progress.dead} requests fill its places, and none runs"
            )
        elif idle_for > stuck_after and (waiting := self.count_waiting(list(progress.queues))):
            self._receive_problem = (
                f"it received nothing for {idle_for:.0f} s, with room for more and {waiting} messages waiting"
            )
        problem = problem or self._receive_problem
        if problem and not self.problem:
            log.error("This worker is stuck", why=problem)
        self.problem = problem

    def _log_unreachable(self, error: Exception) -> None:
        """Log each reason only once, because the broker is polled often."""
        if self._logged_error != (reason := explain(error)):
            log.warning("Broker unreachable", why=reason)
        self._logged_error = reason

    def _record_return(self, tag: str, what: Returned, running: set[str] | None, reason: str) -> None:
        if what.outcome is Outcome.QUARANTINED:
            self._records.end(tag, "QUARANTINED", f"WORKER_CRASHED: {reason}; quarantined")
        elif what.outcome is not Outcome.GONE:
            self._records.end(
                tag, _lost_or_returned(tag, running), f"WORKER_CRASHED: {reason}; {what.outcome.name.lower()}"
            )

    def _end_rest(self, running: set[str] | None, reason: str) -> None:
        for tag in self._records.held():
            if self._records.runs_unprotected(tag):  # its code is named as in Celery, and is not a loss
                lost = f"WorkerLostError: {reason}; not delivered again, because the task has acks_late=False"
                self._records.end(tag, "FAILED", lost)
                continue
            self._records.end(
                tag, _lost_or_returned(tag, running), f"WORKER_CRASHED: {reason}; redelivered by the broker"
            )


def _lost_or_returned(tag: str, running: set[str] | None) -> str:
    return "LOST" if running is None or tag in running else "RETURNED"
