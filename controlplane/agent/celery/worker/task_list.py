"""List the tasks of a worker for a heart that does not know them."""

from __future__ import annotations

from collections.abc import Iterator

from celery.worker import state

from controlplane.agent.celery.messages import FromWorker, TaskRunning
from controlplane.agent.celery.worker.context import ProtectedRequest
from controlplane.agent.celery.worker.kept_ends import KeptEnds


def list_tasks(ends: KeptEnds) -> Iterator[FromWorker]:
    """Yield messages about the tasks that have not ended, then about the ends that are kept.

    A task that is acknowledged early has not ended. The ends come last, because a task may end while this lists it.
    """
    for request in list(state.requests.values()):
        if isinstance(request, ProtectedRequest) and not request.is_reported:
            yield ends.describe_again(request.held, request.since)
            if request.time_start:
                yield TaskRunning(request.tag, request.worker_pid)
    yield from ends.list_messages()
