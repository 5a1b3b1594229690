"""Nothing runs in two places: an attempt that was taken from a server that may not know it yet holds back the next one.

Rows: jobs.models.TakenAttempt. Here is what lets the next one go without that server's word.
"""

import structlog

from jobs.conf import conf
from jobs.services.hints import announce_work
from jobs.sql import sql

log = structlog.get_logger()


def release_taken_attempts() -> int:
    """Let jobs go on whose last attempt cannot run any more, or its server was told for CANCEL_TIMEOUT; how many."""
    released = sql.release_taken_attempts.sweep_rows(cancel_timeout=conf().cancel_timeout)
    for row in released:
        if row.disobeys:
            log.warning(
                f"Worker {row.name} does not stop what was taken from it: the job goes on elsewhere",
                server=str(row.server), job=str(row.job), attempt=str(row.attempt), reason="CANCEL_TIMEOUT",
            )  # fmt: skip
    if released:
        announce_work()
    return len(released)
