"""Queues that a worker does not consume while they are on hold."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from celery.utils.log import get_logger

log = get_logger(__name__)


class HeldQueues:
    """Queues on hold. Messages that the worker has received from them are still executed."""

    def __init__(self) -> None:
        self._names: frozenset[str] = frozenset()
        self._left_out: dict[str, Any] = {}  # the queues that this worker would consume without the hold

    def change(self, consumer: Any, names: Collection[str]) -> None:
        """Stop consuming these queues. Add back those that are no longer on hold; the caller starts to consume them."""
        self._names = frozenset(names)
        for name in sorted(self._left_out.keys() - self._names):
            log.warning("The hold of queue %s has ended: this worker consumes it again", name)
            consumer.task_consumer.add_queue(self._left_out[name])
            del self._left_out[name]
        self._leave_out(consumer)

    def on_connected(self, consumer: Any) -> None:
        """Stop consuming the held queues on a new connection, which consumes all queues at first."""
        self._left_out.clear()
        self._leave_out(consumer)

    def _leave_out(self, consumer: Any) -> None:
        for queue in [one for one in consumer.task_consumer.queues if one.name in self._names]:
            log.warning("Queue %s is on hold: this worker does not consume it", queue.name)
            self._left_out[queue.name] = queue
            consumer.task_consumer.cancel_by_queue(queue)
