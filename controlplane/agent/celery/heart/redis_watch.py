"""The heart's watch on Redis. Redis redelivers nothing, so the protection returns the messages of lost workers."""

from __future__ import annotations

from typing import Any

import structlog

from controlplane.agent.celery.broker.restoring import Loss, Returned, quarantine_text
from controlplane.agent.celery.broker.unacked import UnackedMessages
from controlplane.agent.celery.heart.broker_watch import LOOK_EVERY, LOOK_SOON, BrokerWatch, WatchedWorker
from controlplane.agent.celery.heart.fence import TwoWitnesses
from controlplane.agent.celery.heart.rescue import Rescue, count_by_outcome
from controlplane.agent.celery.heart.task_records import TaskRecords
from controlplane.agent.celery.messages import FailureStored, Greeting, StoreFailure
from controlplane.agent.fence import read_uptime

log = structlog.get_logger()
SWEEP_EVERY = 60.0  # seconds
SHARED_VISIBILITY = 3600.0  # seconds, kombu's default


class RedisWatch(BrokerWatch):
    """Watch whose thread looks for the mark, rescues messages, and has failures stored.

    The main thread cleans up at the end.
    """

    def __init__(self, greeting: Greeting, fence: TwoWitnesses, records: TaskRecords, worker: WatchedWorker) -> None:
        super().__init__(greeting, fence, records, worker)
        self._unacked = UnackedMessages(greeting.connection, greeting.exchanges)
        self._own = UnackedMessages(greeting.connection, greeting.exchanges)  # used by the main thread, at the end
        self.rescue = Rescue(worker.instance, self._unacked, greeting.condemned_for, greeting.max_resubmissions)
        self._next_turn = self._next_sweep = 0.0
        self._stored: list[FailureStored] = []
        self._unreported: dict[str, dict[str, Any]] = {}  # quarantined messages whose failure the worker must store

    def look(self) -> float:
        started = read_uptime()
        try:
            if self._unacked.is_condemned(self._worker.instance):
                self._worker.stop_code("its messages are about to be given to others")
                return LOOK_EVERY
            self._worker.enforce_fence()  # read again, because the reply may have taken long
            self._fence.record_unmarked(started)
            if started >= self._next_turn or self.rescue.waiting():
                self._next_turn = started + self._greeting.every
                self._turn()
        except self._unacked.errors as error:
            self._log_unreachable(error)
            self._unacked.close()
            return LOOK_SOON
        self._logged_error = None
        urgent = self.rescue.waiting() or (self._fence.remaining_seconds() or LOOK_EVERY) < 5 * LOOK_EVERY
        return LOOK_SOON if urgent else LOOK_EVERY

    def _turn(self) -> None:
        self.rescue.run_once()
        for task in self.rescue.to_send():
            # If the task is not found, another worker has sent it, or it is in the broker of another application.
            if self._unacked.send_again(task):
                log.warning("Sent again out of quarantine", task=task)
                self._records.note("SENT", task, "?", "")
        now = read_uptime()
        if now >= self._next_sweep:
            self._next_sweep = now + SWEEP_EVERY
            self._unacked.sweep_shared(self._greeting.visibility_timeout or SHARED_VISIBILITY)
        while self._stored:
            self._unacked.record_stored(*self._stored[-1])
            self._stored.pop()
        for task in self._unacked.unreported():
            if entry := self._unacked.take_unreported(task, self._worker.instance):
                self._unreported[task] = entry
                order = StoreFailure(task, entry["name"], entry["losses"], entry["reason"], entry["message"])
                self._worker.order(order)
        self._check_stuck(now)

    def count_waiting(self, queues: list[str]) -> int:
        return self._unacked.lengths(queues)

    def record_stored(self, stored: FailureStored) -> None:
        self._stored.append(stored)
        if entry := self._unreported.pop(stored.key, None):
            text = quarantine_text(stored.name, entry["losses"], entry["reason"])
            self._records.note("QUARANTINED", stored.task, stored.name, str(entry["routing_key"]), text)

    def give_back_own(self, running: set[str] | None, reason: str) -> bool:
        loss = Loss(self._worker.instance, reason, self._greeting.max_resubmissions)

        def record(tag: str, what: Returned) -> None:
            self._record_return(tag, what, running, reason)

        try:
            outcomes = self._own.give_back_all(self._worker.instance, loss, running, record)
            self._own.leave(self._worker.instance)
        except self._own.errors as error:
            self._log_unreachable(error)
            self._own.close()
            return False
        if outcomes:
            log.warning("Messages returned to their queues", **count_by_outcome(outcomes))
        self._end_rest(running, reason)
        return True
