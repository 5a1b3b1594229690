"""Variant of kombu's QoS for moved messages. The script has already recorded them in Redis."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kombu.transport.virtual import QoS as VirtualQoS

if TYPE_CHECKING:
    Base = Any
else:
    Base = object

UNINDEXED = 16  # number of acknowledged tags that one command removes from the index


class MovedQoS(Base):
    """Mixin for the QoS class of a Redis channel."""

    moved: str | None = None  # tag of a recorded message until kombu appends it
    unindexed: deque[str]  # thread safe, because threads of the pool append to it, too

    def append(self, message: Any, delivery_tag: str) -> None:
        is_recorded, self.moved = delivery_tag == self.moved, None
        if is_recorded:
            VirtualQoS.append(self, message, delivery_tag)
        else:
            super().append(message, delivery_tag)

    def ack(self, delivery_tag: str) -> None:
        """Remove the message at once.

        Its entry in the index is removed later in a batch, because the index only gives the order.
        """
        with self.channel.conn_or_acquire() as client:
            client.hdel(self.unacked_key, delivery_tag)
        VirtualQoS.ack(self, delivery_tag)
        self.unindexed.append(delivery_tag)
        if len(self.unindexed) >= UNINDEXED:
            self.clean_index()

    def clean_index(self) -> None:
        tags = []
        with suppress(IndexError):
            while True:
                tags.append(self.unindexed.popleft())
        if tags:
            with self.channel.conn_or_acquire() as client:
                client.zrem(self.unacked_index_key, *tags)


def mix_in(qos: Any) -> None:
    """Change the class of this object in place, because Celery has replaced some methods of the object."""
    if not isinstance(qos, MovedQoS):
        qos.__class__ = type("Moved" + type(qos).__name__, (MovedQoS, type(qos)), {})
    qos.unindexed = deque()
