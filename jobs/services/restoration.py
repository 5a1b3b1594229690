"""After the database was restored from a backup: it speaks of a past in which other servers were alive, and of attempts
that have ended since."""

from controlplane.core.transactions import retried_atomic
from jobs.conf import conf
from jobs.services import propagation, recovery
from jobs.sql import sql
from liveness.services import restoration
from liveness.services.action_events import INSTANCE, record_action


@retried_atomic
def begin_after_restore(by: str, note: str) -> dict[str, int]:
    """Every server is lost, every live attempt is taken from it, and the clock moves on, in one transaction; how many
    became what.

    What the workers of then still run is fenced as ever: a job whose code had begun goes on elsewhere when its worker
    must have stopped it. Done again it changes nothing, unless servers have come since.
    """
    restoration.move_clock()
    done = {"DISCONNECTED": restoration.lose_servers(by, note)}
    if roots := [row.id for row in sql.executions_of_live_attempts.fetch_rows()]:
        sql.lock_roots.fetch_rows(executions=roots)
    reason = "the database was restored"
    counts = sql.resubmit_live_attempts.fetch_rows(actor=by, reason=reason, max_resubmissions=conf().max_resubmissions)
    propagation.propagate_counted_ends(counts)
    recovery.log_ended_attempts(counts)
    for count in counts:
        done[count.state] = done.get(count.state, 0) + count.jobs
    record_action("after_restore", by, note, INSTANCE)
    return done
