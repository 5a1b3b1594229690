"""Early acknowledgement on RabbitMQ, in the worker's main process.

RabbitMQ closes the channel of a consumer that has not acknowledged a message in time (`consumer_timeout`, by default 30
minutes). RabbitMQ then gives the message to another worker, while its task still runs. So the worker publishes a copy
of the message to a queue of its own, then acknowledges the message. It removes the copy when the task is settled. If
the worker is lost, the copy is returned to the queue of the message.
"""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import Any
from weakref import WeakSet

from celery.utils.log import get_logger
from celery.worker import state as celery_state
from vine import promise

from controlplane.agent.celery.broker import rabbitmq
from controlplane.agent.celery.broker.rabbit_copies import CopyOrigin, RabbitCopies
from controlplane.agent.celery.broker.rabbitmq import REJECTED, losses_of, target_of
from controlplane.agent.celery.broker.restoring import Loss, Returned
from controlplane.agent.celery.worker.context import WorkerContext
from controlplane.agent.celery.worker.prefetch import PrefetchCount

log = get_logger(__name__)
state: Any = celery_state
HOLD_AFTER = 3.0  # seconds that a message may stay unacknowledged; RabbitMQ's timeout is a minute or more
COPIES_PER_TICK = 20  # short, because the main loop waits for them
COPIES = 1000  # largest number of copies; more messages stay unacknowledged
PAUSE = 5.0  # seconds until the next try after an error, because a try may wait for the broker


class EarlyAcknowledgement:
    """Copies of one worker's messages, by the tag of the delivery. Each copy is in a slot (a queue)."""

    def __init__(self, context: WorkerContext) -> None:
        self._context = context
        self._copies = RabbitCopies(context.connection)
        # In the solo pool the main loop waits for the task, so there is no tick and no heartbeat until the task ends.
        self._blocks_loop = context.worker.pool_cls.__module__ == "celery.concurrency.solo"
        self._slots: dict[str, int | None] = {}  # None for a job, because jobs need no copy
        self._lock = threading.RLock()  # needed, because tasks may end in threads of the pool
        self._to_release: list[int] = []
        # Copies to return: slot, whether the code ran, more headers.
        self._to_return: list[tuple[int, bool, dict[str, Any]]] = []
        self._scheduled: WeakSet[Any] = WeakSet()  # requests that were acknowledged before their ETA
        self._received: WeakSet[Any] = WeakSet()
        self._pause_until = 0.0
        # amqp raises AttributeError, too, if its connection is lost.
        self._lost: tuple[type[Exception], ...] = (AttributeError, *self._copies.errors)
        self._consumer: Any = None
        self.prefetch = PrefetchCount()

    def on_connected(self, consumer: Any) -> None:
        """Return the copies of requests that Celery forgot when it lost the connection.

        Running tasks keep their copies.
        """
        self._consumer = consumer
        self._scheduled.clear()
        self.prefetch.on_connected(consumer)
        known = {one.tag for one in self._context.keep_running_requests()}
        for tag in [tag for tag in self._slots if tag not in known]:
            self.return_later(tag, suspect=False)
        self._finish_pending()

    def return_later(self, tag: str, *, suspect: bool) -> None:
        """Return the copy of a message to its queue at the next `tick` at which RabbitMQ can be reached.

        `suspect` counts a loss for the task, because it may have ended its worker.
        """
        with self._lock:
            if (slot := self._slots.pop(tag, None)) is not None:
                self._to_return.append((slot, suspect, {}))

    def count_unacknowledged(self) -> int:
        return len(self._context.open) - len(self._slots)

    def tick(self, consumer: Any) -> None:
        """Acknowledge messages that have been unacknowledged for long. Called twice a second."""
        self._finish_pending()
        for request in [request for request in self._scheduled if request not in state.scheduled_requests]:
            self._scheduled.discard(request)
            consumer.qos.increment_eventually()  # Celery takes back the place that it added for the ETA
        held = 0
        for request in self._due():
            waits = request in state.scheduled_requests
            if self.hold(request, waits=waits):
                held += 1
                if waits:
                    self._scheduled.add(request)
                    consumer.qos.decrement_eventually()
            if held == COPIES_PER_TICK or len(self._slots) >= COPIES:
                break
        self._adjust()

    def on_received(self, request: Any) -> None:
        self._received.add(request)

    def _due(self) -> list[Any]:
        """Return the requests that have been unacknowledged for long. Running requests come first."""
        before = time.monotonic() - HOLD_AFTER
        due = [one for one in list(self._received) if one.since <= before and not one.is_held and not one.acknowledged]
        return sorted(due, key=lambda one: (one not in state.active_requests, one.since))

    def before_begin(self, request: Any) -> None:
        """Acknowledge a request before its code runs, if its losses would not be counted otherwise.

        This is the case if the pool blocks the ticks, or if the task was delivered or lost before and may end its
        worker.
        """
        message = request.message
        if self._blocks_loop or _was_delivered(message) or losses_of(message):
            self.hold(request)

    def hold(self, request: Any, *, waits: bool = False) -> bool:
        """Keep a copy of a message and acknowledge it. Return False if this was done before, or is not possible now.

        `waits` means that the request waits for its ETA, and that Celery has raised the prefetch count for it.
        """
        is_open = request.task.acks_late and not request.acknowledged and not request.is_held
        is_open = is_open and REJECTED not in request.message.headers
        if not is_open or time.monotonic() < self._pause_until:
            return False
        message, slot = request.message, None
        try:
            if not request.is_job:
                slot = self._copy(request)
            if not waits:
                self._adjust(more=1)  # lowered before the acknowledgement frees a place
            message.ack()
        except (*self._copies.errors, *request.connection_errors) as error:
            log.warning("Task %s[%s] is not acknowledged early: %r", request.name, request.id, error)
            self._pause_until = time.monotonic() + PAUSE
            if slot is not None:
                self._to_release.append(slot)
            return False
        self._slots[request.tag] = slot
        request.is_held = True
        request._on_ack = partial(self._on_ack, request.tag)
        request.on_reject = partial(self._on_reject, request.tag, message, request.id)
        return True

    def settle(self, message: Any, tag: str) -> None:
        """Acknowledge a message, or remove its copy if it was acknowledged early."""
        if tag not in self._slots:
            if message is not None:
                message.ack()
            return
        with self._lock:
            if (slot := self._slots.pop(tag)) is not None:
                self._to_release.append(slot)
        self._finish_pending()
        self._consumer.call_soon(promise(self._adjust))  # this thread may belong to the pool

    def give_back(self, message: Any, tag: str, loss: Loss, *, suspect: bool, task: str | None) -> Returned:
        """Publish a message again, or quarantine it. Then acknowledge it, or remove its copy."""
        queue = self.prefetch.queue_of(message)
        returned = rabbitmq.give_back(self._context.app, message, loss, task, queue, suspect=suspect)
        self.settle(message, tag)
        return returned

    def _on_ack(self, tag: str, *_: Any) -> None:
        self.settle(None, tag)

    def _on_reject(self, tag: str, message: Any, task: str, *arguments: Any) -> None:
        if arguments[-1]:
            self.give_back(message, tag, self._loss("requeued"), suspect=False, task=task)
            return
        with self._lock:
            if (slot := self._slots.pop(tag, None)) is not None:
                self._to_return.append((slot, False, {REJECTED: True}))
        self._finish_pending()

    def _loss(self, reason: str) -> Loss:
        return Loss(self._context.instance, reason, self._context.options.max_resubmissions)

    def _adjust(self, more: int = 0) -> None:
        try:
            held = len(self._slots) - len(self._scheduled) + more
            self.prefetch.adjust(held, consumes=self._context.consumes)
        except self._lost as error:
            log.info("The prefetch count is not adjusted, because the connection is lost: %r", error)

    def _copy(self, request: Any) -> int:
        with self._lock:
            taken = {*self._slots.values(), *self._to_release, *(slot for slot, *_ in self._to_return)}
        slot = next(number for number in range(len(taken) + 1) if number not in taken)
        message = request.message
        # A classic queue does not count deliveries. So a message that was delivered before may have ended its worker.
        again = _was_delivered(message) and "x-delivery-count" not in message.headers
        target = target_of(message, self.prefetch.queue_of(message))
        is_shared = bool(message.delivery_info.get("exchange"))
        about: CopyOrigin = {
            "tag": request.tag, "task": request.id, "name": request.name, "target": target, "shared": is_shared,
            "uncounted": int(again),
        }  # fmt: skip
        self._copies.hold(self._context.instance, slot, message, about)
        return slot

    def _finish_pending(self) -> None:
        if time.monotonic() < self._pause_until:
            return
        instance, loss = self._context.instance, self._loss("its worker lost it")
        try:
            with self._lock:
                while self._to_release:
                    self._copies.release(instance, self._to_release[-1])
                    self._to_release.pop()
                while self._to_return:
                    slot, suspect, headers = self._to_return[-1]
                    self._copies.give_back_slot(instance, slot, loss, headers, suspect=suspect)
                    self._to_return.pop()
        except self._copies.errors as error:
            log.warning("Copies of ended tasks are not removed yet: %r", error)
            self._pause_until = time.monotonic() + PAUSE


def _was_delivered(message: Any) -> bool:
    return bool((message.delivery_info or {}).get("redelivered"))
