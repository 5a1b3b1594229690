"""RabbitMQ redelivers by itself; what is needed for that to be quick, and not endless."""

from __future__ import annotations

from typing import Any

from controlplane.agent.celery.restoring import Loss, Outcome, Returned

HEARTBEAT = 10  # seconds; Celery's default of 120 lets a frozen host's messages wait for minutes
CELERY_DEFAULT = 120
QUARANTINE = "controlplane.quarantine"  # a queue
QUARANTINED, ORIGIN = "quarantined", "quarantined_from"  # headers: why, and the exchange and the key to go back to
PROPERTIES = ("correlation_id", "reply_to", "priority", "delivery_mode", "expiration", "message_id", "timestamp")


def configure(conf: Any) -> None:
    """Before the consumer connects."""
    # The broker gives away what runs when the connection is lost: it must not run on.
    conf.worker_cancel_long_running_tasks_on_connection_loss = True


def heartbeat_of(conf: Any) -> float:
    """Of the consumer's connection alone: nobody beats on those that only publish. What the application says stays."""
    heartbeat: float = HEARTBEAT if conf.broker_heartbeat == CELERY_DEFAULT else conf.broker_heartbeat or 0
    return heartbeat


def losses_of(message: Any) -> int:
    """Our own count; of a quorum queue the broker's, which counts the deaths of whole workers too."""
    headers = message.headers or {}
    return int(headers.get("losses") or 0) + int(headers.get("x-delivery-count") or 0)


def give_back(app: Any, message: Any, loss: Loss) -> Returned:
    """To the tail of its queue with `losses` raised, or to the quarantine queue; then acknowledged.

    Published before it is acknowledged: should we die between, it is there twice, and never not at all.
    """
    losses = losses_of(message) + 1
    headers = {key: value for key, value in message.headers.items() if key != "x-delivery-count"}
    task = str(headers.get("id") or message.delivery_tag)
    quarantined = losses > loss.limit
    info = message.delivery_info
    target: dict[str, Any] = {"exchange": info.get("exchange") or "", "routing_key": info.get("routing_key")}
    if quarantined:
        headers |= {QUARANTINED: loss.reason, ORIGIN: target}
        target = {"exchange": "", "routing_key": QUARANTINE, "declare": [_queue()]}
    with app.producer_or_acquire() as producer:
        producer.publish(
            message.body,
            headers={**headers, "losses": losses},
            content_type=message.content_type,
            content_encoding=message.content_encoding,
            **{name: value for name in PROPERTIES if (value := message.properties.get(name)) is not None},
            retry=True,
            retry_policy={"max_retries": 3, "interval_start": 0, "interval_step": 0.2},
            **target,
        )
    message.ack()
    return Returned(Outcome.QUARANTINED if quarantined else Outcome.RESTORED, task, losses)


def _queue() -> Any:
    from kombu import Queue

    return Queue(QUARANTINE, durable=True)
