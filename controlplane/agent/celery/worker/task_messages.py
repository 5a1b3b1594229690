"""Read messages of tasks as Celery does, with their protocol, serializer, compression and signature.

Only the worker's main process can read them, because it has the application's serializers, keys and classes.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

from celery.app.task import Context
from celery.utils.log import get_logger
from celery.worker import strategy as celery_strategy
from kombu.message import Message
from kombu.serialization import prepare_accept_content

log = get_logger(__name__)
strategy: Any = celery_strategy


@dataclass(frozen=True)
class TaskMessage:
    """Id, name and context of a task, read from its message.

    The context is enough for its result, chord and errbacks.
    """

    id: str
    name: str
    context: Context


def read_stored(app: Any, stored: dict[str, Any], key: str, name: str) -> TaskMessage:
    """Read a message in the form that kombu keeps in Redis.

    `key` and `name` are used as id and name of the task if the message cannot be read and its headers lack them.
    """
    properties, body = stored.get("properties") or {}, stored.get("body")
    if properties.get("body_encoding") == "base64" and body is not None:
        body = base64.b64decode(body)
    message = Message(
        body=body,
        content_type=stored.get("content-type"),
        content_encoding=stored.get("content-encoding"),
        headers=dict(stored.get("headers") or {}),
        properties=properties,
        accept=prepare_accept_content(app.conf.accept_content),
    )
    try:
        return read_message(message)
    except Exception as error:
        log.warning("Chord and errbacks of task %s are not called: its message cannot be read: %r", key, error)
        headers = message.headers
        return TaskMessage(str(headers.get("id") or key), str(headers.get("task") or name), Context(dict(headers)))


def read_message(message: Any) -> TaskMessage:
    """Read a message. If it cannot be read, the same errors are raised as in Celery."""
    payload = message.payload
    if "task" not in message.headers:
        (args, kwargs, embed), headers, *_ = strategy.proto1_to_proto2(message, payload)
    elif "args" in payload:
        (args, kwargs, embed), headers, *_ = strategy.hybrid_to_proto2(message, payload)
    else:
        (args, kwargs, embed), headers = payload, message.headers
    context = Context({**headers, **(embed or {}), "args": args, "kwargs": kwargs})
    return TaskMessage(str(headers["id"]), str(headers["task"]), context)
