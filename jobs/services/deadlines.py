"""Cancel jobs and executions that have not ended at their deadline, if they ask for it.

Every job past its deadline has the flag `deadline_missed`, and the alert rule of the same name finds it.
"""

from uuid import UUID

import structlog

from controlplane.core.transactions import isolate_row
from jobs.services import cancellation, recovery
from jobs.sql import sql
from liveness.selectors.clock import latest_check_age

log = structlog.get_logger()

BATCH = 1000


def cancel_past_deadlines() -> dict[str, int]:
    """Cancel jobs and executions past their deadline with DEADLINE_MISSED. Return their numbers by state.

    A deadline counts after one whole liveness check has begun and ended since. So after an outage of the control plane
    workers first report the jobs that ended in time.
    """
    late_after = float(latest_check_age())
    done = recovery.sweep_in_batches(sql.cancel_jobs_past_deadline, late_after=late_after)
    count, after = 0, UUID(int=0)
    while due := sql.find_executions_past_deadline.fetch_rows(batch=BATCH, after=after, late_after=late_after):
        for row in due:
            with isolate_row("executions past their deadline", row.id):
                count += len(cancellation.stop_executions([row.id], "DEADLINE_MISSED", row.message))
                log.warning("Execution missed its deadline", execution=str(row.id), reason=row.message)
        after = due[-1].id
    return done | ({"CANCELLING": count} if count else {})
