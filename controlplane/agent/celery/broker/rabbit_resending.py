"""Send tasks out of the quarantine on RabbitMQ. The quarantine is a queue there."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from kombu import Connection, Producer, Queue

from controlplane.agent.celery.broker.rabbitmq import (
    ORIGIN,
    QUARANTINE,
    QUARANTINED,
    QUARANTINED_ID,
    headers_to_publish,
    properties_of,
)


def send_again(connection: Connection, tasks: Collection[str]) -> list[str]:
    """Send quarantined tasks to the tails of their queues, with a loss count of zero. Return the ids that were found.

    Each message is published again before it is acknowledged. All other messages return to their places when the
    connection closes.
    """
    sent = []
    with connection.clone() as opened:
        channel = opened.default_channel
        queue: Any = Queue(QUARANTINE, durable=True)(channel)
        waiting = queue.queue_declare().message_count
        while waiting > 0 and (message := queue.get()) is not None:
            waiting -= 1
            headers = headers_to_publish(message)
            origin = headers.pop(ORIGIN, None)
            task = str(headers.pop(QUARANTINED_ID, None) or headers.get("id"))
            if task not in tasks or origin is None:
                continue
            for name in ("losses", QUARANTINED):
                headers.pop(name, None)
            # The worker records the end of a redelivered task, however short the task is.
            headers["redelivered"] = True
            Producer(channel).publish(
                message.body,
                headers=headers,
                content_type=message.content_type,
                content_encoding=message.content_encoding,
                **properties_of(message),
                **origin,
            )
            message.ack()
            sent.append(task)
    return sent
