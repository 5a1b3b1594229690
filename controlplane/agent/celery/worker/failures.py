"""Store FAILURE in the result backend for quarantined tasks."""

from __future__ import annotations

from typing import Any

from billiard.exceptions import WorkerLostError
from celery import signals

from controlplane.agent.celery.broker.restoring import quarantine_text
from controlplane.agent.celery.messages import StoreFailure
from controlplane.agent.celery.worker.task_messages import read_stored


def store_failure_of(app: Any, order: StoreFailure) -> tuple[str, str]:
    """Store the failure of a quarantined message for which this worker has no request. Return the task's id and name.

    Errors of the result backend are raised.
    """
    message = read_stored(app, order.message, order.key, str(order.name or "?"))
    task = app.tasks.get(message.name) or app.tasks["celery.backend_cleanup"]
    text = quarantine_text(message.name, order.losses, order.reason)
    store_failure(task, message.id, message.context, text, stores=True)
    return message.id, message.name


def store_failure(task: Any, id: str, context: Any, text: str, *, stores: bool) -> None:
    """Mark a task as failed in the result backend, and call its chord, its errbacks and its failure signal.

    `stores` is the task's own setting. It is False if the task ignores its result.
    """
    error = WorkerLostError(text)
    task.backend.mark_as_failure(id, error, request=context, store_result=stores)
    signals.task_failure.send(
        sender=task, task_id=id, exception=error, args=context.args, kwargs=context.kwargs, traceback=None, einfo=None
    )
