"""Copies in RabbitMQ of the messages that workers acknowledged early.

RabbitMQ has no keys, so everything is stored in queues. Each worker has slots: queues `controlplane.held.INSTANCE.N`
with at most one copy each. The queue `controlplane.mark.INSTANCE` has a message if the worker is marked, because its
copies are about to be returned to their queues. The queue `controlplane.holders` has a message for each worker that may
hold copies.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any, TypedDict

import structlog
from kombu import Connection, Queue

from controlplane.agent.celery.broker import keys
from controlplane.agent.celery.broker.rabbit_connection import RabbitConnection, declare, publish, put
from controlplane.agent.celery.broker.rabbit_holders import RabbitHolders
from controlplane.agent.celery.broker.rabbitmq import (
    HELD,
    UNREPORTED,
    headers_to_publish,
    losses_of,
    target_after,
)
from controlplane.agent.celery.broker.restoring import Loss, Outcome, Returned

log = structlog.get_logger()


class CopyOrigin(TypedDict):
    """Header of a copy: its task, and the exchange and routing key for its return."""

    tag: str  # of the delivery
    task: str
    name: str
    target: dict[str, Any]
    shared: bool  # its exchange may have delivered the message to other queues, too
    uncounted: int  # number of deliveries that may have ended a worker, and that the queue does not count


class RabbitCopies(RabbitConnection):
    """Copies of workers' messages. Thread safe. Every method raises `errors` if RabbitMQ cannot be reached.

    `holders` is the list of instances that may hold copies. All objects of a process share it.
    """

    def __init__(self, connection: Connection, holders: RabbitHolders | None = None) -> None:
        super().__init__(connection)
        self._list = holders or RabbitHolders()
        self._has_mark: set[str] = set()
        self._marked_at: dict[str, float] = {}

    # Used by the worker's main process

    def hold(self, instance: str, slot: int, message: Any, about: CopyOrigin) -> None:
        """Publish a copy of a message to a slot of this worker. RabbitMQ has confirmed it when this returns."""
        with self.channel() as channel:
            declare(channel, held(instance, slot))
            headers = {**headers_to_publish(message), "losses": losses_of(message), HELD: about}
            publish(channel, message, headers, {"exchange": "", "routing_key": held(instance, slot)})

    def release(self, instance: str, slot: int) -> None:
        """Remove the copy in a slot."""
        with self.channel() as channel:
            channel.queue_purge(held(instance, slot))

    # Used by hearts

    def enter(self, instance: str) -> None:
        """Add an instance to the list of instances that may hold copies."""
        if instance not in self._has_mark:
            with self.channel() as channel:
                declare(channel, mark(instance), expires=keys.MARK_KEPT)
            self._has_mark.add(instance)
        self._list.enter(self, instance)

    def leave(self, instance: str) -> bool:
        """Remove the queues and the entries of an instance, if it holds nothing. Return False if something is left."""
        slot = 0
        while (count := self.count(held(instance, slot))) is not None:
            if count:
                return False
            slot += 1
        with self.channel() as channel:
            for number in range(slot):
                channel.queue_delete(held(instance, number))
            channel.queue_delete(mark(instance))
        self._has_mark.discard(instance)
        return self._list.leave(self, instance)

    def holders(self) -> list[str]:
        """Return the instances that may hold copies. The list may be some seconds old."""
        return self._list.current(self)

    def is_condemned(self, instance: str) -> bool:
        """Return True if this instance is marked."""
        count = self.count(mark(instance))
        if count is None:  # the queue was deleted
            self._has_mark.discard(instance)
            self.enter(instance)
        return bool(count)

    def condemn(self, instance: str, by: str) -> float:
        """Mark an instance. Return the seconds since this process first marked it."""
        if instance not in self._marked_at:
            with self.channel() as channel:
                declare(channel, mark(instance), expires=keys.MARK_KEPT)
                put(channel, mark(instance), by)
            self._marked_at[instance] = time.monotonic()
        return time.monotonic() - self._marked_at[instance]

    def give_back_all(
        self,
        instance: str,
        loss: Loss,
        running: Collection[str] | None,
        returned: Callable[[str, Returned], None] = lambda tag, what: None,
        *,
        has_ended: Callable[[str], bool] = lambda tag: False,
    ) -> Counter[Outcome]:
        """Return every copy of an instance to its queue. Drop a copy if `has_ended` is True for its task.

        `running` are the tags of tasks whose code ran. None means that the code of any task may have run. `returned` is
        called for each copy. While this process holds a copy unacknowledged, no other process can receive it.
        """
        outcomes: Counter[Outcome] = Counter()
        slot = 0
        while (count := self.count(held(instance, slot))) is not None:
            for _ in range(count):
                with self._received(instance, slot) as message:
                    if message is None:
                        break
                    tag = str(message.headers[HELD]["tag"])
                    if not has_ended(tag):
                        what = self._give_back(message, loss, {}, suspect=running is None or tag in running)
                        outcomes[what.outcome] += 1
                        returned(tag, what)
            slot += 1
        return outcomes

    def give_back_slot(self, instance: str, slot: int, loss: Loss, more: dict[str, Any], *, suspect: bool) -> None:
        """Return the copy in one slot to its queue, with the headers `more`.

        `suspect` means that the code of the task ran.
        """
        with self._received(instance, slot) as message:
            if message is not None:
                self._give_back(message, loss, more, suspect=suspect)

    @contextmanager
    def _received(self, instance: str, slot: int) -> Iterator[Any]:
        """Yield the copy in a slot, or None if the slot is empty. Acknowledge the copy at the end."""
        with self.channel() as channel:
            message = Queue(held(instance, slot))(channel).get()
            yield message
            if message is not None:
                message.ack()

    def _give_back(self, message: Any, loss: Loss, more: dict[str, Any], *, suspect: bool) -> Returned:
        headers = headers_to_publish(message) | more
        about = headers.pop(HELD)
        headers["losses"] = losses = losses_of(message) + (1 + about["uncounted"] if suspect else 0)
        # The worker records the end of a redelivered task, however short the task is.
        headers["redelivered"] = True
        is_quarantined = losses > loss.limit
        target = target_after(about["target"], headers, loss, about["task"], is_quarantined=is_quarantined)
        if is_quarantined:
            target["routing_key"] = UNREPORTED
            headers["name"] = about["name"]
        elif target["exchange"] == "" and about["shared"] and self.count(target["routing_key"]) is None:
            # It was probably the queue of one worker for a broadcast. The other workers have their own messages.
            log.error("Message dropped, because its queue is deleted", queue=target["routing_key"], task=about["task"])
            return Returned(Outcome.GONE, about["task"], losses)
        if target["exchange"] == "":
            self.declare_if_missing(target["routing_key"])
        publish(message.channel, message, headers, target)
        return Returned(Outcome.QUARANTINED if is_quarantined else Outcome.RESTORED, about["task"], losses)

    def lengths(self, queues: Collection[str]) -> int:
        """Return the number of messages in these queues."""
        return sum(self.count(queue) or 0 for queue in queues)


def held(instance: str, slot: int) -> str:
    return f"controlplane.held.{instance}.{slot}"


def mark(instance: str) -> str:
    return f"controlplane.mark.{instance}"
