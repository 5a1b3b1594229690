"""Connection to RabbitMQ in addition to Celery's, for short queries and for copies of messages."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from amqp.exceptions import NotFound
from kombu import Connection, Producer, Queue
from kombu.exceptions import OperationalError

from controlplane.agent.celery.broker.rabbitmq import properties_of

TIMEOUTS = {"read_timeout": 5, "write_timeout": 5, "connect_timeout": 4}  # seconds


class RabbitConnection:
    """Connection that is opened on first use, and opened again after an error.

    Thread safe. Every method raises `errors` if RabbitMQ cannot be reached.
    """

    def __init__(self, connection: Connection) -> None:
        options = {**TIMEOUTS, **(connection.transport_options or {}), "confirm_publish": True}
        self._broker = connection.clone(transport_options=options, heartbeat=0)
        self._connection: Any = None
        self._lock = threading.RLock()
        errors: Any = (*connection.connection_errors, *connection.channel_errors, OperationalError, OSError)
        self.errors: tuple[type[Exception], ...] = errors

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                with suppress(Exception):
                    self._connection.collect()
            self._connection = None

    def count(self, queue: str) -> int | None:
        """Return the number of messages in a queue. Return None if the queue does not exist."""
        try:
            with self.channel() as channel:
                return int(channel.queue_declare(queue, passive=True).message_count)
        except NotFound:
            return None

    def declare_if_missing(self, queue: str) -> None:
        """Declare a queue, because RabbitMQ drops a message to a missing queue without an error."""
        if self.count(queue) is None:
            with self.channel() as channel:
                declare(channel, queue)

    @contextmanager
    def channel(self) -> Iterator[Any]:
        """Yield a new channel, because an error of RabbitMQ closes its channel."""
        with self._lock:
            try:
                channel = self._open()
            except self.errors:  # the connection was lost after its last use
                self.close()
                channel = self._open()
            try:
                yield channel
            finally:
                if channel.is_open:
                    with suppress(*self.errors):
                        channel.close()

    def _open(self) -> Any:
        if self._connection is None:
            self._connection = self._broker.clone()
        return self._connection.channel()


def declare(channel: Any, queue: str, expires: float | None = None) -> None:
    Queue(queue, durable=True, expires=expires)(channel).queue_declare()


def put(channel: Any, queue: str, text: str) -> None:
    """Publish a text to a queue as a persistent message."""
    Producer(channel).publish(text, exchange="", routing_key=queue, delivery_mode=2)


def publish(channel: Any, message: Any, headers: dict[str, Any], target: dict[str, Any]) -> None:
    """Publish a copy of a received message. RabbitMQ has confirmed it when this returns."""
    Producer(channel).publish(
        message.body,
        headers=headers,
        content_type=message.content_type,
        content_encoding=message.content_encoding,
        **properties_of(message),
        **target,
    )
