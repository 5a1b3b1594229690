"""Sends tasks out of the quarantine on RabbitMQ, which is a queue."""

from __future__ import annotations

import threading
from collections.abc import Collection
from typing import Any

import structlog
from kombu import Connection, Producer, Queue

from controlplane.agent.celery.ledger import Ledger
from controlplane.agent.celery.rabbitmq import ORIGIN, PROPERTIES, QUARANTINE, QUARANTINED

log = structlog.get_logger()


class Resending:
    """Asks with the heartbeats for what somebody wants sent again. RabbitMQ itself knows who is lost: of that nothing
    is asked."""

    def __init__(self, connection: Connection, ledger: Ledger) -> None:
        self._connection, self._ledger = connection, ledger
        self._thread: threading.Thread | None = None

    def ask(self) -> list[str]:
        return []

    def hear(self, answer: dict[str, Any], unknown_for: float) -> None:
        """In a thread, for the broker may be slow, and whoever hears beats."""
        if (tasks := list(map(str, answer.get("send") or ()))) and not (self._thread and self._thread.is_alive()):
            self._thread = threading.Thread(target=self._send, args=(tasks,), name="resending", daemon=True)
            self._thread.start()

    def unheard(self) -> None:
        pass

    def _send(self, tasks: list[str]) -> None:
        try:
            for task in send_again(self._connection, tasks):
                log.warning("Sent again out of quarantine", task=task)
                self._ledger.note("SENT", task, "?", "")
        except Exception:
            log.exception("Not sent again out of quarantine")


def send_again(connection: Connection, tasks: Collection[str]) -> list[str]:
    """To the tails of their queues, as if they had never been lost; those that were there.

    Published before it is acknowledged. What is looked at meanwhile goes back to its place when the connection closes.
    """
    sent = []
    with connection.clone() as opened:
        channel = opened.default_channel
        queue: Any = Queue(QUARANTINE, durable=True)(channel)
        waiting = queue.queue_declare().message_count
        while waiting > 0 and (message := queue.get()) is not None:
            waiting -= 1
            headers = dict(message.headers)
            origin = headers.pop(ORIGIN, None)
            if str(headers.get("id")) not in tasks or origin is None:
                continue
            for name in ("losses", QUARANTINED):
                headers.pop(name, None)
            headers["redelivered"] = True  # so that its end is recorded, however soon it comes
            Producer(channel).publish(
                message.body,
                headers=headers,
                content_type=message.content_type,
                content_encoding=message.content_encoding,
                **properties_of(message),
                **origin,
            )
            message.ack()
            sent.append(str(headers["id"]))
    return sent


def properties_of(message: Any) -> dict[str, Any]:
    return {name: value for name in PROPERTIES if (value := message.properties.get(name)) is not None}
