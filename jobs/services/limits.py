"""Limits: how many jobs with a key run at once, and how often they start, over all workers.

A submission parks jobs unless their keys have room for all of them. A claim gives a job all the slots that it needs,
or parks it (jobs/sql/claiming.sql). A slot is a row, which is deleted when its attempt has ended and its code has
stopped. Whatever frees a slot, and whatever removes a waiting job, notes the keys to be checked again in the same
transaction. A later transaction takes these notes and settles the keys: as many jobs of a key are claimable as it has
free slots, in each set of required tags. A job of a fair key gets its turn then (jobs/sql/fair_turns.sql).

Locks: keys come after jobs. A settlement holds the lock of its keys, so it never waits for a job but skips locked ones.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterable

import structlog
from django.db import DatabaseError

from controlplane.core.database import connection, transaction
from controlplane.core.transactions import retried_atomic
from jobs.services import hints
from jobs.services.hints import announce_work
from jobs.sql import sql
from jobs.sql.rows.hints import ClaimableJobs

log = structlog.get_logger()

KEYS_AT_ONCE, JOBS_AT_ONCE = 500, 5000
LOOK_INTERVAL = 1.0
"""Seconds between two looks of a process for keys that another one noted, and for starts that are due."""


settling = threading.local()
"""`is_on` is True while this thread settles. Starts of executions settle after their commits, and must not nest."""
settled_lately: set[str] = set()
"""Keys that this process has settled since `settle_left` was last called."""


def settle_soon() -> None:
    """Settle the noted keys after the commit of the open transaction, or now outside a transaction.

    An error is only logged, because the notes stay and the next look takes them.
    """
    transaction.on_commit(try_to_settle)


def try_to_settle(settle: Callable[[], int] | None = None) -> None:
    """Settle the noted keys. Errors of the database are logged."""
    try:
        (settle or settle_rechecks)()
    except DatabaseError as error:
        log.warning("Limits are settled later", why=str(error).strip().split("\n")[0])


def settle_rechecks(*, with_all_executions: bool = False) -> int:
    """Settle all noted keys, and start executions that wait for them.

    With `with_all_executions`, start executions that wait for any key. Returns how many jobs and executions may start.
    """
    from jobs.services import execution_starts  # it stands on executions, which stand on this module

    if getattr(settling, "is_on", False):
        return 0  # an execution ended with its start, and the loop of the caller looks again
    settling.is_on = True
    try:
        after = 0
        total = execution_starts.start_executions(execution_starts.list_waited_keys()) if with_all_executions else 0
        while noted := sql.list_rechecks.fetch_rows(most=KEYS_AT_ONCE, after=after):
            total += execution_starts.start_executions({row.key for row in noted if row.is_waited_for})
            to_settle = [row.id for row in noted if row.has_jobs or row.is_waited_for]
            unparked = settle_noted(to_settle) if to_settle else None
            if unparked is not None:
                total += unparked
            elif len(noted) == KEYS_AT_ONCE:
                after = noted[-1].id  # another process settles these, or nothing waits
            else:
                break
        return total
    finally:
        settling.is_on = False


@retried_atomic
def settle_noted(ids: list[int]) -> int | None:
    """Settle the keys of these notes. Return how many jobs were unparked, or None if other processes have all notes."""
    keys = [row.key for row in sql.take_rechecks.fetch_rows(ids=ids)]
    return settle_keys(keys) if keys else None


def settle_keys(keys: Collection[str]) -> int:
    """Park and unpark jobs of these keys, so that as many are claimable as slots are free. Return the unparked ones.

    It must run in a transaction of its own, which holds no lock that a holder of a key could wait for. It skips locked
    jobs, so `settle_left` settles these keys once more.
    """
    statement = sql.settle_keys.after(sql.lock_limit_keys)
    [settled] = statement.fetch_rows(keys=list(keys), most=JOBS_AT_ONCE)
    if max(settled.parked, settled.moved) >= JOBS_AT_ONCE:
        sql.note_rechecks.fetch_rows(keys=list(keys))  # there may be more
    settled_lately.update(keys)
    if settled.unparked:
        announce_work()
    return settled.unparked


class RegularLook:
    """Look of this process for keys that are noted and starts that are due, at most once in LOOK_INTERVAL."""

    def __init__(self) -> None:
        self._next = 0.0

    def take(self) -> None:
        """Look, unless this process has just done so."""
        now = time.monotonic()
        if now < self._next or connection.in_atomic_block:
            return
        self._next = now + LOOK_INTERVAL
        try_to_settle(settle_left)


regular_look = RegularLook()


def list_claimable_jobs(most: int, offers: Iterable[tuple[str, Iterable[str]]]) -> list[ClaimableJobs]:
    """Return the jobs that workers with these offers can claim, after a regular look. See the function of `hints`."""
    regular_look.take()
    return hints.list_claimable_jobs(most, offers)


def settle_due_starts() -> int:
    """Unpark the jobs of keys whose starts are due by now. Return how many."""
    return settle_each([row.key for row in sql.list_parked_keys.fetch_rows(rated=True)])


@retried_atomic
def settle_each(keys: list[str]) -> int:
    return settle_keys(keys) if keys else 0


def settle_left() -> int:
    """Settle keys that were left, and starts that are due. Return how many jobs and executions may start now.

    Keys that this process has settled since the last call are settled once more. A job that was locked then, for
    instance by a change that was refused, has no other note.
    """
    if again := list(settled_lately):
        sql.note_rechecks.fetch_rows(keys=again)
    total = settle_rechecks(with_all_executions=True) + settle_due_starts()
    settled_lately.difference_update(again)
    return total


def repair_limits() -> dict[str, int]:
    """Free slots that nothing freed, and unpark jobs that nothing unparked. Return the numbers, if there are any."""
    sql.drop_full_buckets.fetch_rows()
    sql.drop_past_turns.fetch_rows()
    freed = len(sql.free_slots.sweep_rows())
    sql.free_slots_of_executions.fetch_rows()
    settle_left()
    unparked = settle_each([row.key for row in sql.list_parked_keys.fetch_rows(rated=False)])
    if freed or unparked:
        sql.count_limit_repairs.fetch_rows(freed=freed, unparked=unparked)
        log.warning("Repaired limits", slots=freed, jobs=unparked)
    return {name: count for name, count in (("slots", freed), ("jobs", unparked)) if count}
