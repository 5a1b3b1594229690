"""Correct the state after the database was restored from a backup.

The backup contains servers that were alive at that time, and attempts that may have ended since.
"""

from controlplane.core.transactions import retried_atomic
from jobs.conf import conf
from jobs.services import failover, propagation, recovery
from jobs.sql import sql
from liveness.services import restoration
from liveness.services.action_events import INSTANCE, record_action
from liveness.services.failover import compare_timeline


@retried_atomic
def begin_after_restore(by: str, note: str) -> dict[str, int | str]:
    """Mark every server as lost, end every live attempt, and advance the clock, in one transaction.

    Workers of that time may still run code. The fence applies as usual: a job whose code had begun runs elsewhere only
    when its worker must have stopped. A second call changes nothing, unless servers have registered since. Return the
    number of rows by their new state. On a new timeline of the database, also return what was lost.
    """
    compare_timeline()
    lost = failover.describe_losses()
    restoration.move_clock()
    done: dict[str, int] = {"DISCONNECTED": restoration.lose_servers(by, note)}
    if roots := [row.id for row in sql.executions_of_live_attempts.fetch_rows()]:
        sql.lock_roots.fetch_rows(executions=roots)
    reason = "the database was restored"
    counts = sql.resubmit_live_attempts.fetch_rows(actor=by, reason=reason, max_resubmissions=conf().max_resubmissions)
    propagation.propagate_counted_ends(counts)
    recovery.log_ended_attempts(counts)
    for count in counts:
        done[count.state] = done.get(count.state, 0) + count.jobs
    if (raised := failover.raise_attempt_counts()) is not None:
        done["Raised attempt counts"] = raised
    record_action("after_restore", by, note, INSTANCE)
    return {**done, **lost}
