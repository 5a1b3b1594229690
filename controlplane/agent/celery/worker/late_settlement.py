"""Messages on Redis that a worker can settle after it lost the connection that received them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from controlplane.agent.celery.worker.context import WorkerContext
from controlplane.agent.celery.worker.settlement import Settlement

if TYPE_CHECKING:
    Base = Any
else:
    Base = object


class LateSettlement(Base):
    """Mixin for the Message class of a Redis channel.

    If the connection of a message is lost, the message is settled through another connection. kombu's own methods would
    raise AttributeError, which ends the worker, or only log an error.
    """

    context: WorkerContext
    settlement: Settlement

    def ack(self, multiple: bool = False) -> None:
        if self.channel.closed and not self.acknowledged:
            self.settlement.acknowledge_later(self.delivery_tag)
            self._state = "ACK"
            return
        try:
            super().ack(multiple)
        except self.context.errors:
            self.settlement.acknowledge_later(self.delivery_tag)

    def reject(self, requeue: bool = False) -> None:
        if self.channel.closed and not self.acknowledged:
            if requeue:
                self.settlement.give_back(self, self.delivery_tag, "requeued", suspect=False)
            else:
                self.settlement.acknowledge_later(self.delivery_tag)
            self._state = "REJECTED"
        else:
            super().reject(requeue)

    def requeue(self) -> None:
        self.reject(requeue=True)


def message_class(base: type, context: WorkerContext, settlement: Settlement) -> type:
    """Return a subclass of `base` with late settlement."""
    attributes = {"context": context, "settlement": settlement}
    return type("SettledLate" + base.__name__, (LateSettlement, base), attributes)
