"""The heart's watch on RabbitMQ. RabbitMQ redelivers unacknowledged messages by itself.

RabbitMQ closes a silent connection after some time, and the worker's code must have stopped by then. Copies of messages
that were acknowledged early are returned as on Redis: after the control plane has declared the worker lost, and after a
mark.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog

from controlplane.agent.celery.broker.rabbit_copies import RabbitCopies
from controlplane.agent.celery.broker.rabbit_holders import RabbitHolders
from controlplane.agent.celery.broker.rabbit_resending import send_again
from controlplane.agent.celery.broker.rabbit_unreported import UnreportedQueue
from controlplane.agent.celery.broker.restoring import Loss, Returned, quarantine_text
from controlplane.agent.celery.heart.broker_watch import LOOK_EVERY, BrokerWatch, WatchedWorker
from controlplane.agent.celery.heart.fence import TwoWitnesses
from controlplane.agent.celery.heart.rescue import Rescue, count_by_outcome
from controlplane.agent.celery.heart.task_records import TaskRecords
from controlplane.agent.celery.messages import FailureStored, Greeting
from controlplane.agent.fence import read_uptime

log = structlog.get_logger()


def alive_for(greeting: Greeting) -> float | None:
    """Return the seconds that code may run while its worker is frozen.

    None if the broker does not redeliver by itself.
    """
    heartbeat = greeting.broker_heartbeat
    return None if greeting.kind == "redis" or not heartbeat else 0.8 * heartbeat


class RabbitWatch(BrokerWatch):
    """Watch in three threads: one looks at the worker, and two at the broker, because the broker may be slow."""

    def __init__(self, greeting: Greeting, fence: TwoWitnesses, records: TaskRecords, worker: WatchedWorker) -> None:
        super().__init__(greeting, fence, records, worker)
        self._has_copies = greeting.kind == "amqp"
        holders, connection = RabbitHolders(), greeting.connection
        self._copies = RabbitCopies(connection, holders)
        self._marks = RabbitCopies(connection, holders)  # used by the thread that looks for the mark
        self._own = RabbitCopies(connection, holders)  # used by the main thread, at the end
        self.rescue = Rescue(worker.instance, self._copies, greeting.condemned_for, greeting.max_resubmissions)
        self._unreported = UnreportedQueue(connection)
        self._open_at_end: set[str] | None = None
        self._is_ending = False
        looks = ((self._look_for_mark, self._marks, LOOK_EVERY), (self._turn, self._copies, greeting.every))
        self._threads = [threading.Thread(target=self._repeat, args=look, daemon=True) for look in looks]

    def run(self) -> None:
        for thread in self._threads if self._has_copies else ():
            thread.start()
        super().run()

    def look(self) -> float:
        self._fence.record_look(read_uptime())
        if not self._has_copies:
            self._fence.record_unmarked(read_uptime())
            self._check_stuck(read_uptime())
        return LOOK_EVERY

    def stop(self) -> None:
        super().stop()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(10)

    def _repeat(self, look: Callable[[], None], copies: RabbitCopies, every: float) -> None:
        pause = 0.0
        while not self._stopped.wait(pause):
            pause = every
            if self._worker.main_is_stopped():
                continue
            try:
                look()
                self._logged_error = None
            except copies.errors as error:
                self._log_unreachable(error)
                copies.close()
            except Exception:
                log.exception("The look at the broker failed")

    def _look_for_mark(self) -> None:
        started = read_uptime()
        if self._marks.is_condemned(self._worker.instance):
            self._worker.stop_code("its messages are about to be given to others")
        else:
            self._fence.record_unmarked(started)

    def _turn(self) -> None:
        self._check_stuck(read_uptime())
        self.rescue.run_once()
        if tasks := self.rescue.to_send():
            for task in send_again(self._greeting.connection, tasks):
                log.warning("Sent again out of quarantine", task=task)
                self._records.note("SENT", task, "?", "")
        if done := self._unreported.finish():
            text = quarantine_text(done.name, done.losses, done.reason)
            self._records.note("QUARANTINED", done.id, done.name, done.queue, text)
        if order := self._unreported.next_order():
            self._worker.order(order)

    def count_waiting(self, queues: list[str]) -> int:
        return self._copies.lengths(queues) if self._has_copies else 0

    def record_stored(self, stored: FailureStored) -> None:
        self._unreported.record_stored(stored)

    def give_back_own(self, running: set[str] | None, reason: str) -> bool:
        if not self._has_copies:
            return super().give_back_own(running, reason)
        if not self._is_ending:
            self._is_ending = True
            self._open_at_end = None if self._records.running() is None else set(self._records.held())
        still_open = self._open_at_end

        def record(tag: str, what: Returned) -> None:
            self._record_return(tag, what, running, reason)

        def has_ended(tag: str) -> bool:
            return still_open is not None and tag not in still_open

        loss = Loss(self._worker.instance, reason, self._greeting.max_resubmissions)
        try:
            outcomes = self._own.give_back_all(self._worker.instance, loss, running, record, has_ended=has_ended)
            has_left = self._own.leave(self._worker.instance)
        except self._own.errors as error:
            self._log_unreachable(error)
            self._own.close()
            return False
        if outcomes:
            log.warning("Messages returned to their queues", **count_by_outcome(outcomes))
        return super().give_back_own(running, reason) and has_left
