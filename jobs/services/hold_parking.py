"""Jobs parked by holds, so that a claim does not read past a large backlog that is on hold.

A hold of an action, a limit key or an execution acts from its commit, as a condition of claims. Its jobs are parked
afterwards, in batches: by the call that creates the hold, and by each sweep for later jobs. When the hold has ended,
they are unparked in the order of claims. Both are found by state, so the next sweep finishes what was interrupted.
"""

from uuid import UUID

import structlog
from django.db import DatabaseError

from controlplane.core.transactions import retried_atomic
from jobs.services import limits
from jobs.services.hints import announce_work
from jobs.sql import sql
from jobs.sql.rows.hold_parking import ParkedBatch

log = structlog.get_logger()

JOBS_AT_ONCE = 2000
"""Number of jobs that one transaction reads or unparks."""
BATCHES_OF_CALL = 20
"""Largest number of batches of one call of the API. The sweep does the rest."""
FIRST = UUID(int=0)


def try_to_settle_holds() -> None:
    """Park and unpark some jobs after a hold began or ended. The sweep tries again after an error of the database."""
    try:
        settle_holds(BATCHES_OF_CALL)
    except DatabaseError as error:
        log.warning("Jobs on hold are parked later", why=str(error).strip().split("\n")[0])


def settle_holds(batches: int | None = None) -> dict[str, int]:
    """Unpark the jobs of holds that have ended, and park those of holds in force. Return the numbers that are not 0.

    At most `batches` are processed of each (None: all).
    """
    unparked = unpark_jobs(batches)
    parked, no_longer_covered = park_jobs(batches)
    done = {"parked": parked, "unparked": unparked + no_longer_covered}
    return {name: jobs for name, jobs in done.items() if jobs}


def unpark_jobs(batches: int | None = None) -> int:
    """Unpark the jobs of holds that have ended, and wake workers. Return how many."""
    total, left = 0, batches
    for hold in sql.list_holds_to_unpark.fetch_rows():
        while left is None or left > 0:
            unparked = unpark_batch(hold.id)
            total += unparked
            left = None if left is None else left - 1
            if unparked < JOBS_AT_ONCE:
                break
    return total


@retried_atomic
def unpark_batch(hold: UUID) -> int:
    unparked = sql.unpark_held_jobs.fetch_only_row(hold=hold, most=JOBS_AT_ONCE).unparked
    if unparked:
        announce_work()
        limits.settle_soon()
    return unparked


def park_jobs(batches: int | None = None) -> tuple[int, int]:
    """Park waiting jobs that a hold in force covers. Return how many were parked, and how many were unparked.

    The latter are jobs that their hold does not cover any more.
    """
    parked = unparked = done = 0
    after: UUID | None = FIRST
    while after is not None and (batches is None or done < batches):
        batch = park_batch(after)
        parked, unparked, done = parked + batch.parked, unparked + batch.unparked, done + 1
        after = batch.last if batch.read == JOBS_AT_ONCE else None
    return parked, unparked


@retried_atomic
def park_batch(after: UUID) -> ParkedBatch:
    batch = sql.park_held_jobs.fetch_only_row(after=after, most=JOBS_AT_ONCE)
    if batch.unparked:
        announce_work()
    if batch.parked or batch.unparked:
        limits.settle_soon()
    return batch
