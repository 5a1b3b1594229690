"""No job is lost with its worker. What becomes of each is decided in sql/settle.sql.

Runs code twice when a worker that was lost is still at it: at-least-once is the promise. Its late
reports are refused (jobs/services/reporting.py), so only one result is accepted.
"""

from typing import Any

import structlog

from jobs.conf import conf
from jobs.services import cascade
from jobs.sql import sql

log = structlog.get_logger()

BATCH = 5000


def recover(batch: int = BATCH) -> dict[str, int]:
    """Recover the attempts of every lost server, in batches that commit one by one; how many ended how.

    Any number may run at once: what one holds, the others skip.
    """
    ended: dict[str, int] = {}
    while True:
        rows = sql.sweep("recover", then=cascade.run, batch=batch, max_resubmissions=conf().max_resubmissions)
        report(rows)
        for row in rows:
            ended[row.attempt_state] = ended.get(row.attempt_state, 0) + 1
        if len(rows) < batch:
            return ended


def report(ended: list[Any]) -> None:
    """The log lines of attempts that ended otherwise than their jobs."""
    for row in ended:
        log.warning(
            f"Attempt {row.attempt_state}, job {row.job_state}",
            job=str(row.job),
            attempt=str(row.attempt),
            server=str(row.server),
            reason=row.reason,
        )
