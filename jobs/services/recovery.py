"""Recovers the attempts of lost workers. The step `end_attempts` decides what happens to each job.

Known weakness: code may run twice if a lost worker is still running it, because the promise is at-least-once.
Superseded reports of that worker are refused (jobs/services/rejected_reports.py), so only one result is accepted.
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
from jobs.sql.rows.deadlines import SweptJobs
from jobs.sql.rows.heartbeats import EndedAttempts
from jobs.sql.rows.sweep import UnmatchedJobs

log = structlog.get_logger()

Swept = TypeVar("Swept", EndedAttempts, SweptJobs, UnmatchedJobs)
"""Row of a batch of a sweep: the number of jobs or attempts that ended in a state."""

BATCH = 5000
LOGGED_LIMIT = 100
"""Jobs of a batch that get their own log line. The statements return no more ids of each row (`ends_to_propagate`)."""
UNLOGGED_COLUMNS = ("state", "job_state", "jobs", "listed", "attempts")


def recover_attempts(batch: int = BATCH) -> dict[str, int]:
    """Recover the attempts of every lost server. Return their number by state.

    Several processes may run this at once: each skips the rows that another has locked.
    """
    return sweep_in_batches(sql.recover_attempts, batch, server=None, max_resubmissions=conf().max_resubmissions)


def recover_server(server: UUID) -> None:
    """Recover the attempts of one lost server, after the calls that hold its row now, such as its last claim.

    It skips a job that another transaction holds, such as the server's last report.
    """
    # The kept plan would read all lost servers.
    statement = sql.recover_attempts.planned_at_each_call().after(sql.lock_server)
    sweep_in_batches(statement, server=server, max_resubmissions=conf().max_resubmissions)


def sweep_in_batches(
    statement: Statement[Swept],
    batch: int = BATCH,
    progress: Callable[[int], None] = lambda count: None,
    *,
    is_expected: bool = False,
    **parameters: Any,
) -> dict[str, int]:
    """Run a sweep batch by batch, each in its own transaction, until a batch is not full. Return numbers by state.

    With `is_expected` the jobs ended as they should, so no warning is logged.
    """
    ended: Counter[str] = Counter()
    left_out: list[RowKey] = []
    while True:
        known = len(left_out)
        counts = statement.sweep_rows(
            then=propagation.propagate_counted_ends, left_out=left_out, batch=batch, **parameters
        )
        log_ended_attempts(counts, is_expected=is_expected)
        if counts:
            announce_work()  # other workers may claim the recovered jobs
        for count in counts:
            ended[count.state] += count.jobs
        done = sum(count.jobs for count in counts)
        progress(done)
        if done < batch and len(left_out) == known:
            return dict(ended)


def log_ended_attempts(counts: list[Swept], *, is_expected: bool = False) -> None:
    """Write a log line for each of the first LOGGED_LIMIT jobs of a batch, and one for the rest of each row.

    A batch may have many thousand jobs.
    """
    left = LOGGED_LIMIT
    write = log.info if is_expected else log.warning
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
            write(event, job=str(job), **of, **fields)
        if (more := count.jobs - len(count.listed[:left])) > 0:
            write(f"{event}: more jobs", jobs=more, **fields)
        left = max(0, left - count.jobs)
