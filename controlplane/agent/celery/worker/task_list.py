"""List the tasks of a worker for a heart that does not know them."""

from __future__ import annotations

from collections.abc import Iterator

from celery.worker import state

from controlplane.agent.celery.messages import FromWorker, TaskEnded, TaskRunning
from controlplane.agent.celery.worker.context import ProtectedRequest
from controlplane.agent.celery.worker.kept_ends import KeptEnds


def list_tasks(ends: KeptEnds) -> Iterator[FromWorker]:
    """Yield messages about the ends that are kept, then about the tasks that have not ended.

    A task that is acknowledged early has not ended. The tasks come last, because on Redis a task may have the tag of an
    earlier delivery whose end is kept. They are looked up first, because one may end while this lists it. Its own end
    then follows, or is among the kept ends.
    """
    requests = [one for one in list(state.requests.values()) if isinstance(one, ProtectedRequest)]
    requests = [one for one in requests if not one.is_reported]
    kept = ends.list_messages()
    yield from kept
    ended = {message.kept_attempt for message in kept if isinstance(message, TaskEnded)}
    for request in requests:
        if request.attempt not in ended:
            yield ends.describe_again(request.held, request.since)
            if request.is_given or request.time_start:
                yield TaskRunning(request.tag, request.worker_pid)
