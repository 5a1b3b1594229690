"""Counts what has ended into minutes and hours, from which charts are drawn; and looks what waits and runs.

Those who end jobs do nothing for it: what ended is found by an index. It is counted again until it cannot change any
more, and each count replaces the one before. So nothing is counted twice, and nothing is missed: not what a transaction
commits late that ended its jobs a while ago, for a minute is final only once it has been counted after the end of every
transaction that was under way at the count before.
"""

from controlplane.core.transactions import retried_atomic
from jobs import history
from jobs.conf import conf
from jobs.sql import sql
from jobs.sql.rows.history import CountedHistory


def count_history() -> int:
    """Count up to now, in several transactions where much is to be caught up; how many rows changed."""
    changed = 0
    while counted := count_once():
        changed += counted.rows
        if counted.is_up_to_date:
            break
    return changed


@retried_atomic
def count_once() -> CountedHistory | None:
    """One stretch, with its watermark: both are there after a crash, or neither. None: somebody else is at it."""
    now = sql.read_end_of_count.fetch_only_row().now
    if (lock := sql.lock_history.fetch_row()) is None:
        return None
    counted = sql.count_ends.fetch_only_row(
        now=now, xid=lock.xid, margin=history.MARGIN, hours=history.HOURS_AT_ONCE, first_hours=history.FIRST_HOURS,
        settled=history.SETTLED,
    )  # fmt: skip
    if counted.is_up_to_date:
        sql.note_present.fetch_rows()
    sql.add_up_hours.fetch_rows(since=counted.since)
    sql.delete_old_history.fetch_rows(
        since=counted.since, minutes_kept=history.MINUTES_KEPT_HOURS, hours_kept=conf().history_retention
    )
    return counted
