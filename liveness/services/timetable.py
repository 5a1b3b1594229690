"""Whether a tick is to be heeded. After an outage of the executors, hundreds wait in the broker: one of them counts.

Judged by the database's clock alone: a moment that the sender writes into the tick (`expires`) would be one of its own
clock, and a scheduler whose clock is slow would stop every check without a word.
"""

from liveness.sql import sql


def try_begin_task(task: str, after: float) -> bool:
    """Whether this task begins now: it was not begun within the last `after` seconds."""
    return sql.begin_task.fetch_row(task=task, after=after) is not None
