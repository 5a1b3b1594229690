"""FAILURE in the result backend for a task that is in quarantine."""

from __future__ import annotations

import base64
from typing import Any

from billiard.exceptions import WorkerLostError
from celery import signals
from celery.app.task import Context
from celery.utils.log import get_logger
from kombu.serialization import loads

log = get_logger(__name__)


def store_failure(task: Any, id: str, context: Any, text: str, stores: bool) -> None:
    """FAILURE in the result backend, with what hangs on it: chords, errbacks, the task's own signal."""
    error = WorkerLostError(text)
    task.backend.mark_as_failure(id, error, request=context, store_result=stores)
    signals.task_failure.send(
        sender=task, task_id=id, exception=error, args=context.args, kwargs=context.kwargs, traceback=None, einfo=None
    )


def context_of(message: dict[str, Any]) -> Context:
    """Of a task that no request was made of: enough for its result, its chord and its errbacks."""
    args, kwargs, embed = (), {}, {}
    try:
        body = message["body"]
        if (message.get("properties") or {}).get("body_encoding") == "base64":
            body = base64.b64decode(body)
        args, kwargs, embed = loads(body, str(message.get("content-type")), str(message.get("content-encoding")))
    except Exception as error:
        log.warning("The body of a quarantined task was not read, its chord is not told: %r", error)
    return Context({**message["headers"], **(embed or {}), "args": args, "kwargs": kwargs})
