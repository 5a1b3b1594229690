"""No job is lost with its worker. What becomes of each is decided in `end_attempts`.

Runs code twice when a worker that was lost is still at it: at-least-once is the promise. Its superseded
reports are refused (jobs/services/rejected_reports.py), so only one result is accepted.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar
from uuid import UUID

import structlog

from controlplane.core.statements import RowKey, Statement
from jobs.conf import conf
from jobs.services import propagation
from jobs.services.hints import announce_work
from jobs.sql import sql
from jobs.sql.rows.heartbeats import EndedAttempts
from jobs.sql.rows.sweep import ExpiredJobs, UnmatchedJobs

log = structlog.get_logger()

Swept = TypeVar("Swept", EndedAttempts, ExpiredJobs, UnmatchedJobs)
"""How many ended how, in a batch of a sweep."""

BATCH = 5000
LOGGED_LIMIT = 100
"""Jobs of a batch that the log names; the statements tell no more of each sort (`ends_to_propagate`)."""
UNLOGGED_COLUMNS = ("state", "job_state", "jobs", "listed", "attempts")


def recover_attempts(batch: int = BATCH) -> dict[str, int]:
    """Recover the attempts of every lost server; how many ended how.

    Any number may run at once: what one holds, the others skip.
    """

    return sweep_in_batches(sql.recover_attempts, batch, max_resubmissions=conf().max_resubmissions)


def sweep_in_batches(
    statement: Statement[Swept],
    batch: int = BATCH,
    progress: Callable[[int], None] = lambda count: None,
    **parameters: Any,
) -> dict[str, int]:
    """Sweep, each time in a transaction of its own, until a batch is not full; how many ended how."""
    ended: Counter[str] = Counter()
    left_out: list[RowKey] = []
    while True:
        known = len(left_out)
        counts = statement.sweep_rows(
            then=propagation.propagate_counted_ends, left_out=left_out, batch=batch, **parameters
        )
        log_ended_attempts(counts)
        if counts:
            announce_work()  # of a lost worker, for another
        for count in counts:
            ended[count.state] += count.jobs
        done = sum(count.jobs for count in counts)
        progress(done)
        if done < batch and len(left_out) == known:
            return dict(ended)


def log_ended_attempts(counts: list[Swept]) -> None:
    """A line of the log for each that ended, and from LISTED of a batch on one for all that ended alike: they may be a
    hundred thousand."""
    left = LOGGED_LIMIT
    for count in counts:
        fields = {
            name: value
            for name, value in count._asdict().items()
            if name not in (*propagation.PROPAGATED_COLUMNS, *UNLOGGED_COLUMNS)
        }
        attempts: list[UUID] = []
        event = f"Job {count.state}"
        if isinstance(count, EndedAttempts):
            attempts, event = count.attempts, f"Attempt {count.state}, job {count.job_state}"
        for place, job in enumerate(count.listed[:left]):
            of = {"attempt": str(attempts[place])} if attempts else {}
            log.warning(event, job=str(job), **of, **fields)
        if (more := count.jobs - len(count.listed[:left])) > 0:
            log.warning(f"{event}: more of them", jobs=more, **fields)
        left = max(0, left - count.jobs)
