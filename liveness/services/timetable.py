"""Limit how often periodic tasks run. Hundreds of ticks may wait in the broker after an outage; only one runs.

Only the database's clock counts. Celery's `expires` would compare with the scheduler's clock. If that clock is slow,
all ticks would be dropped silently.
"""

from liveness.sql import sql


def try_begin_task(task: str, after: float) -> bool:
    """Return True, and record the start, if the task was not started within the last `after` seconds."""
    return sql.begin_task.fetch_row(task=task, after=after) is not None
