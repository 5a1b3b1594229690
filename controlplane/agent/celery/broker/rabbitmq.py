"""Settings and messages of RabbitMQ. RabbitMQ itself redelivers messages late and without a limit."""

from __future__ import annotations

from typing import Any

from controlplane.agent.celery.broker.restoring import Loss, Outcome, Returned

HEARTBEAT = 10  # seconds; with Celery's default of 120, the messages of a frozen host wait for minutes
CELERY_DEFAULT = 120
QUARANTINE = "controlplane.quarantine"  # a queue
# Headers: the reason, and the exchange and routing key for the return.
QUARANTINED, ORIGIN = "quarantined", "quarantined_from"
UNREPORTED = "controlplane.quarantine.unreported"  # a queue of quarantined messages whose FAILURE is not stored yet
HELD = "controlplane_held"  # header of a copy: see CopyOrigin
# Header that makes the receiver reject the message, so that RabbitMQ can make it a dead letter.
REJECTED = "controlplane_rejected"
QUARANTINED_ID = "quarantined_id"  # header with the task's id; messages of protocol 1 have it only in the body
PROPERTIES = ("correlation_id", "reply_to", "priority", "delivery_mode", "message_id", "timestamp")


def configure(conf: Any) -> None:
    """Change the settings of an application, before its consumer connects."""
    # If the connection is lost, RabbitMQ redelivers the messages of running tasks, so these tasks must stop.
    conf.worker_cancel_long_running_tasks_on_connection_loss = True


def heartbeat_of(conf: Any) -> float:
    """Return the heartbeat of the consumer's connection in seconds; 0 means no heartbeats.

    A value that the application has set stays. Connections that only publish send no heartbeats.
    """
    heartbeat: float = HEARTBEAT if conf.broker_heartbeat == CELERY_DEFAULT else conf.broker_heartbeat or 0
    return heartbeat


def losses_of(message: Any) -> int:
    """Return the number of losses of a message: the protection's own count, plus the count of a quorum queue."""
    headers = message.headers or {}
    return int(headers.get("losses") or 0) + int(headers.get("x-delivery-count") or 0)


def give_back(
    app: Any, message: Any, loss: Loss, task: str | None = None, queue: str | None = None, *, suspect: bool = True
) -> Returned:
    """Publish a message again, at the tail of its queue or in the quarantine queue. The caller acknowledges it.

    `task` is the id of its task, and `queue` the name of its queue, if the caller knows them. `suspect` means that the
    code of the task ran: its number of losses grows by one.
    """
    losses = losses_of(message) + suspect
    headers = headers_to_publish(message)
    id = str(task or headers.get("id") or message.delivery_tag)
    quarantined = losses > loss.limit
    target = target_after(target_of(message, queue), headers, loss, id, is_quarantined=quarantined)
    if quarantined:
        target["declare"] = [_queue()]
    with app.producer_or_acquire() as producer:
        producer.publish(
            message.body,
            headers={**headers, "losses": losses, "redelivered": True},
            content_type=message.content_type,
            content_encoding=message.content_encoding,
            **properties_of(message),
            retry=True,
            retry_policy={"max_retries": 3, "interval_start": 0, "interval_step": 0.2},
            **target,
        )
    return Returned(Outcome.QUARANTINED if quarantined else Outcome.RESTORED, id, losses)


def target_of(message: Any, queue: str | None) -> dict[str, Any]:
    """Return the exchange and routing key to which a received message returns.

    If the queue is known, its name is used, because the exchange may deliver the message to other queues, too.
    """
    info = message.delivery_info or {}
    if queue:
        return {"exchange": "", "routing_key": queue}
    return {"exchange": info.get("exchange") or "", "routing_key": info.get("routing_key")}


def target_after(
    target: dict[str, Any], headers: dict[str, Any], loss: Loss, task: str, *, is_quarantined: bool
) -> dict[str, Any]:
    """Return the exchange and routing key for a message after a loss. If it is quarantined, add headers to it."""
    if not is_quarantined:
        return dict(target)
    headers |= {QUARANTINED: loss.reason, ORIGIN: target, QUARANTINED_ID: task}
    return {"exchange": "", "routing_key": QUARANTINE}


def properties_of(message: Any) -> dict[str, Any]:
    """Return the properties for a copy of a message.

    A copy has no expiration, because Celery's own header limits its time.
    """
    return {name: value for name in PROPERTIES if (value := message.properties.get(name)) is not None}


def headers_to_publish(message: Any) -> dict[str, Any]:
    """Return the headers for a copy of a received message, whose body kombu has decompressed."""
    return {key: value for key, value in message.headers.items() if key not in ("x-delivery-count", "compression")}


def _queue() -> Any:
    from kombu import Queue

    return Queue(QUARANTINE, durable=True)
