"""Quarantined messages on RabbitMQ whose failure is not stored yet, because their worker died.

A heart takes one message at a time, and its worker's main process stores the failure. Until then the message stays
unacknowledged. So if this worker dies as well, another worker receives the message.
"""

from __future__ import annotations

import base64
import time
from typing import Any, NamedTuple

from kombu import Connection, Producer, Queue

from controlplane.agent.celery.broker.rabbitmq import (
    ORIGIN,
    QUARANTINE,
    QUARANTINED,
    QUARANTINED_ID,
    UNREPORTED,
    headers_to_publish,
    properties_of,
)
from controlplane.agent.celery.messages import FailureStored, StoreFailure

REPORTED_WITHIN = 60.0  # seconds after which another worker may try


class QuarantinedTask(NamedTuple):
    """A task in quarantine whose failure is stored."""

    id: str
    name: str
    losses: int
    reason: str
    queue: str


class UnreportedQueue:
    """Queue of these messages. Only one thread uses it, but any thread may call `record_stored`."""

    def __init__(self, connection: Connection) -> None:
        self._broker = connection
        self._connection: Connection | None = None
        self._message: Any = None
        self._taken_at = 0.0
        self._stored: FailureStored | None = None

    def record_stored(self, stored: FailureStored) -> None:
        """Record that the worker stored the failure of a message."""
        self._stored = stored

    def next_order(self) -> StoreFailure | None:
        """Take the next message, and return the order to store its failure. Return None if there is no message."""
        if self._message is not None and time.monotonic() - self._taken_at < REPORTED_WITHIN:
            return None
        self._close()
        self._connection = self._broker.clone(
            transport_options={**(self._broker.transport_options or {}), "confirm_publish": True}
        )
        queue: Any = Queue(UNREPORTED, durable=True)(self._connection.default_channel)
        queue.queue_declare()
        if (message := queue.get()) is None:
            self._close()
            return None
        self._message, self._taken_at = message, time.monotonic()
        headers, body = dict(message.headers), message.body
        stored = {
            "body": base64.b64encode(body.encode() if isinstance(body, str) else body).decode(),
            "content-type": message.content_type,
            "content-encoding": message.content_encoding,
            "headers": {name: value for name, value in headers_to_publish(message).items() if name != ORIGIN},
            "properties": {"body_encoding": "base64"},
        }
        return StoreFailure(
            key=str(headers[QUARANTINED_ID]),
            name=headers.get("name"),
            losses=int(headers["losses"]),
            reason=str(headers[QUARANTINED]),
            message=stored,
        )

    def finish(self) -> QuarantinedTask | None:
        """Move a message whose failure is stored to the quarantine. Return its task, or None if there is no message."""
        stored, message = self._stored, self._message
        self._stored = None
        if not stored or message is None or stored.key != str(message.headers[QUARANTINED_ID]):
            return None
        task = stored.task
        headers = headers_to_publish(message) | {QUARANTINED_ID: task}
        Producer(message.channel).publish(
            message.body,
            exchange="",
            routing_key=QUARANTINE,
            declare=[Queue(QUARANTINE, durable=True)],
            headers=headers,
            content_type=message.content_type,
            content_encoding=message.content_encoding,
            **properties_of(message),
        )
        message.ack()
        self._close()
        queue = str(headers[ORIGIN]["routing_key"])
        return QuarantinedTask(task, stored.name, int(headers["losses"]), str(headers[QUARANTINED]), queue)

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = self._message = None
