"""What `protect` adds to the consumer of each worker, whose steps begin anew with each connection."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from celery import bootsteps
from celery.utils.log import get_logger
from celery.worker import state

from controlplane.agent.celery import rabbitmq
from controlplane.agent.celery.holdings import Holdings
from controlplane.agent.celery.requests import Protected, message_class
from controlplane.agent.celery.restoring import Loss

if TYPE_CHECKING:
    from controlplane.agent.celery.bootsteps import Protection

log = get_logger(__name__)
TICK = 0.5  # seconds


class OwnLeftovers(bootsteps.StartStopStep):
    """Of the consumer, at each connection: what an earlier one left of ours and nobody runs goes back to its queue.

    Celery forgets what it had prefetched when it loses a connection, and nothing goes back for its age.
    """

    label = "Own leftovers"
    requires = ("celery.worker.consumer.connection:Connection",)

    def include_if(self, consumer: Any) -> bool:
        protection = getattr(consumer.controller, "protection", None)
        return protection is not None and protection.kind == "redis"

    def start(self, consumer: Any) -> None:
        protection: Protection = consumer.controller.protection
        protection.protect_tasks()  # some may have been made since
        holdings = protection.holdings
        if holdings is None:
            return
        with _raised_as(consumer, holdings):
            holdings.enter(protection.instance)
            tags = set(holdings.tags(protection.instance))
            running = {request.tag for request in state.active_requests if isinstance(request, Protected)}
            protection.open = set(running)
            settled = tags & set(protection.done)
            loss = Loss(protection.instance, "the connection was lost", protection.options.max_resubmissions)
            outcomes = holdings.give_back_all(protection.instance, loss, (), keep=running, settled=settled)
            if outcomes:
                log.warning("Given back after a lost connection: %s", {key.name: n for key, n in outcomes.items()})


@contextmanager
def _raised_as(consumer: Any, holdings: Holdings) -> Any:
    """An error of Redis as one that makes the consumer connect anew."""
    try:
        yield
    except holdings.errors as error:
        holdings.close()
        raise ConnectionError(f"Redis: {error}") from error


class Watched(bootsteps.StartStopStep):
    """Of the consumer, once it consumes: ticks for the heart, and no restoring by kombu while we live."""

    label = "Watched"
    requires = ("celery.worker.consumer.tasks:Tasks",)
    _timer: Any = None

    def __init__(self, consumer: Any, **kwargs: Any) -> None:
        super().__init__(consumer, **kwargs)
        protection: Protection | None = getattr(consumer.controller, "protection", None)
        if protection and protection.kind != "redis" and consumer.amqheartbeat:
            consumer.amqheartbeat = rabbitmq.heartbeat_of(consumer.app.conf)

    def include_if(self, consumer: Any) -> bool:
        return getattr(consumer.controller, "protection", None) is not None

    def start(self, consumer: Any) -> None:
        protection: Protection = consumer.controller.protection
        if protection.kind == "redis":
            # A connection that is closed for an error would give back what runs here, too.
            channel = consumer.task_consumer.channel
            channel.qos.restore_at_shutdown = False
            channel.Message = message_class(channel.Message, protection)
        if protection.jobs:
            protection.jobs.consume(consumer)
        protection.consumes = True
        self._timer = consumer.timer.call_repeatedly(TICK, protection.tick, (consumer,))
        protection.tell("connected")

    def stop(self, consumer: Any) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
