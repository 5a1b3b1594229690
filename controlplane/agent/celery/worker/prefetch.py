"""The prefetch count of a consumer on RabbitMQ while some of its messages are acknowledged early.

An early acknowledged message keeps its place until its task is settled. Otherwise the worker would receive another
message. That message would wait behind a long task while other workers are idle.
"""

from __future__ import annotations

from typing import Any


class PrefetchCount:
    """Prefetch count of one worker. Only its main loop uses it."""

    def __init__(self) -> None:
        self._consumer: Any = None
        self._lowered = 0  # difference between Celery's own prefetch count and the current one
        self.is_paused = False  # True if all places are taken; a prefetch count of 0 would mean no limit
        self._names: dict[str, str] = {}  # names of queues by consumer tag; tags change with each pause

    def on_connected(self, consumer: Any) -> None:
        """Begin again with Celery's own prefetch count."""
        self._consumer, self._lowered, self.is_paused = consumer, 0, False

    def adjust(self, held: int, *, consumes: bool) -> None:
        """Lower the prefetch count by `held` messages. Cancel the consumers while no place is left.

        `consumes` means that the worker is not cordoned.
        """
        qos, task_consumer = self._consumer.qos, self._consumer.task_consumer
        if not task_consumer or not qos or not qos.value:
            return  # no limit
        own = qos.value + self._lowered
        lowered = own - max(1, own - held)
        if lowered > self._lowered:
            qos.decrement_eventually(lowered - self._lowered)
        elif lowered < self._lowered:
            qos.increment_eventually(self._lowered - lowered)
        if lowered != self._lowered:
            self._lowered = lowered
            qos.update()
        if self.is_paused != (held >= own):
            self.is_paused = not self.is_paused
            self._remember_tags()
            if consumes and self.is_paused:
                task_consumer.cancel()
            elif consumes:
                task_consumer.consume()

    def queue_of(self, message: Any) -> str | None:
        """Return the name of the queue from which a message was received."""
        self._remember_tags()
        return self._names.get((message.delivery_info or {}).get("consumer_tag", ""))

    def _remember_tags(self) -> None:
        if self._consumer and self._consumer.task_consumer:
            self._names |= {tag: name for name, tag in self._consumer.task_consumer._active_tags.items()}
