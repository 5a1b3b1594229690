"""Boot steps that `protect` adds to the consumer of a worker. They start again with each connection."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from celery import bootsteps
from celery.utils.log import get_logger

from controlplane.agent.celery.broker import rabbitmq
from controlplane.agent.celery.broker.access import explain
from controlplane.agent.celery.broker.restoring import Loss
from controlplane.agent.celery.broker.unacked import UnackedMessages
from controlplane.agent.celery.messages import ConsumerConnected
from controlplane.agent.celery.worker.bootsteps import Protection
from controlplane.agent.celery.worker.heart_pipe import TICK
from controlplane.agent.celery.worker.late_settlement import message_class
from controlplane.agent.celery.worker.moving import MessageMover

log = get_logger(__name__)


class OwnLeftovers(bootsteps.StartStopStep):
    """Step that returns messages of this worker's earlier connection that no task runs. It is used only on Redis.

    Celery forgets prefetched messages when it loses a connection. With the protection, no message returns because of
    its age.
    """

    label = "Own leftovers"
    requires = ("celery.worker.consumer.connection:Connection",)

    def include_if(self, consumer: Any) -> bool:
        protection = getattr(consumer.controller, "protection", None)
        return protection is not None and protection.context.kind == "redis"

    def start(self, consumer: Any) -> None:
        protection: Protection = consumer.controller.protection
        protection.protect_tasks()  # the application may have defined more tasks since the last connection
        context = protection.context
        if context.unacked is None:
            return
        with _raised_as_connection_error(context.unacked):
            context.unacked.enter(context.instance)
            tags = set(context.unacked.tags(context.instance))
            running = {one.tag for one in context.keep_running_requests()}
            settled = tags & set(context.done)
            loss = Loss(context.instance, "the connection was lost", context.options.max_resubmissions)
            outcomes = context.unacked.give_back_all(context.instance, loss, (), keep=running, settled=settled)
            if outcomes:
                counts = {outcome.name: count for outcome, count in outcomes.items()}
                log.warning("Messages returned after a lost connection: %s", counts)


@contextmanager
def _raised_as_connection_error(unacked: UnackedMessages) -> Iterator[None]:
    """Turn an error of Redis into an error that makes the consumer connect again."""
    try:
        yield
    except unacked.errors as error:
        unacked.close()
        raise ConnectionError(f"Redis: {explain(error)}") from error


class ConsumerTicks(bootsteps.StartStopStep):
    """Step that prepares a connected consumer, and runs the periodic work of the protection."""

    label = "Ticks of the protection"
    requires = ("celery.worker.consumer.tasks:Tasks",)
    _timer: Any = None

    def __init__(self, consumer: Any, **kwargs: Any) -> None:
        super().__init__(consumer, **kwargs)
        protection: Protection | None = getattr(consumer.controller, "protection", None)
        if protection and protection.context.kind != "redis" and consumer.amqheartbeat:
            consumer.amqheartbeat = rabbitmq.heartbeat_of(consumer.app.conf)

    def include_if(self, consumer: Any) -> bool:
        return getattr(consumer.controller, "protection", None) is not None

    def start(self, consumer: Any) -> None:
        protection: Protection = consumer.controller.protection
        if protection.context.kind == "redis":
            # Otherwise kombu would return messages of running tasks when it closes a connection after an error.
            channel = consumer.task_consumer.channel
            channel.qos.restore_at_shutdown = False
            channel.Message = message_class(channel.Message, protection.context, protection.settlement)
            is_allowed = protection.mover is not None and protection.mover.is_allowed
            protection.mover = MessageMover.install(consumer, protection.settlement.set_aside, is_allowed=is_allowed)
        if protection.early:
            protection.early.on_connected(consumer)
        if protection.jobs:
            protection.jobs.consume(consumer)
        protection.orders.held_queues.on_connected(consumer)
        protection.context.consumes = True
        self._timer = consumer.timer.call_repeatedly(TICK, protection.tick, (consumer,))
        protection.send(ConsumerConnected())

    def stop(self, consumer: Any) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
