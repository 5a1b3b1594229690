"""Count dead requests.

Celery treats them as running or waiting, but no process runs them, so they take places forever.
"""

from __future__ import annotations

from typing import Any

from celery.worker import state as celery_state

state: Any = celery_state


def count_dead(consumer: Any) -> int:
    """Return the number of requests of a full worker if all of them are dead.

    Return 0 if one runs, or waits for its ETA.
    """
    if state.scheduled_requests or any(bucket and bucket.contents for bucket in consumer.task_buckets.values()):
        return 0
    pids = _pids(consumer.pool)
    if any(pids is None or request.worker_pid in pids for request in state.active_requests):
        return 0
    return len(state.requests)


def _pids(pool: Any) -> set[int] | None:
    """Return the process ids of the pool. Return None for a pool without processes."""
    processes = getattr(getattr(pool, "_pool", None), "_pool", None)
    if not isinstance(processes, list):
        return None
    return {process.pid for process in processes if process.exitcode is None}
