"""Keep code from running in two places. A taken attempt holds back the next attempt and the dependents of its job.

A taken attempt was taken from a server that may not know that yet and may still run its code. It has a row in
jobs.models.TakenAttempt. A job with `on_worker_lost: FAIL` fails at once, but its dependents and hooks begin only when
another attempt could begin.
"""

from uuid import UUID

import structlog

from controlplane.core.transactions import isolate_row, retried_atomic
from jobs.conf import conf
from jobs.services import execution_starts, executions, limits
from jobs.services.hints import announce_work
from jobs.sql import sql

log = structlog.get_logger()


def release_taken_attempts() -> int:
    """Release attempts whose code cannot run any more, or whose server had CANCEL_TIMEOUT to stop it.

    Return how many.
    """
    released = sql.release_taken_attempts.sweep_rows(cancel_timeout=conf().cancel_timeout)
    for row in released:
        if row.disobeys:
            log.warning(
                f"Worker {row.name} does not stop an attempt that was taken from it: the job continues elsewhere",
                server=str(row.server), job=str(row.job), attempt=str(row.attempt), reason="CANCEL_TIMEOUT",
            )  # fmt: skip
    if released:
        announce_work()
        execution_starts.free_kept_slots()
        limits.settle_soon()
    pass_on_freed_ends()
    return len(released)


def pass_on_freed_ends(attempts: list[UUID] | None = None) -> None:
    """Advance executions whose ended step waited for its code to stop. `attempts` limits them; None means all."""
    for row in sql.find_freed_executions.fetch_rows(attempts=attempts):
        with isolate_row("executions advanced", row.id):
            advance_execution(row.id)


@retried_atomic
def advance_execution(execution: UUID) -> None:
    executions.advance_executions([execution])
