"""Count ended jobs by minute and hour for the charts, and sample how many jobs wait and run.

The end of a job writes nothing for the history, because an index finds ended jobs. A minute is counted again, and the
earlier count replaced, until it is final. It is final once it was counted after the end of all transactions that were
open at the previous count. So no job is counted twice, and jobs of transactions that commit late are not missed.
"""

from controlplane.core.transactions import retried_atomic
from jobs import history
from jobs.conf import conf
from jobs.sql import sql
from jobs.sql.rows.history import CountedHistory


def count_history() -> int:
    """Count up to now, in several transactions if there is much to catch up. Return how many rows changed."""
    changed = 0
    while counted := count_once():
        changed += counted.rows
        if counted.is_up_to_date:
            break
    return changed


@retried_atomic
def count_once() -> CountedHistory | None:
    """Count one period and move the watermark, in one transaction. Return None if another process is counting."""
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
