"""Starts of executions with limits: an execution takes all its slots at once, and holds them until its end.

Until it starts, the execution and its first steps are parked. Executions that wait for a key start in their order. The
settlement of limits and claims reserve the slots of the first one, so jobs do not overtake it. The settlement starts
executions of the noted keys. The regular look starts all whose slots are free, so a lost note only delays them.

Locks: the keys are locked after the roots and the executions. Then only parked and BLOCKED steps of these trees are
locked. A transaction that holds one of these locks never waits for a key.
"""

from collections.abc import Collection, Sequence
from functools import partial
from uuid import UUID

from controlplane.core.transactions import record_left_out, retried_atomic, run_in_halves
from jobs.services import executions
from jobs.services.hints import announce_work
from jobs.sql import sql

EXECUTIONS_AT_ONCE = 100


def list_waited_keys() -> list[str]:
    """Return all keys for which executions wait."""
    return [row.key for row in sql.list_waited_keys.fetch_rows()]


def start_executions(keys: Collection[str]) -> int:
    """Start executions that wait for these keys and whose slots are free now.

    Returns how many started or wait for another key. One that the database refuses to start is left out.
    """
    total, left_out = 0, set[UUID]()
    while keys and (moved := start_some(keys, left_out)):
        total += sum(moved)
    return total


def start_some(keys: Collection[str], left_out: set[UUID]) -> list[bool]:
    """Start some executions, a hundred in a transaction, and add those that cannot start to `left_out`.

    Returns True for each that started or waits for another key, and False for each that was left out.
    """

    def leave_out(execution: UUID, error: Exception) -> list[bool]:
        record_left_out("executions started", execution, error)
        left_out.add(execution)
        sql.note_rechecks.fetch_rows(keys=list(keys))  # it reserves no slots any more
        return [False]

    by_namespace: dict[str, list[UUID]] = {}
    for row in sql.list_executions_to_start.fetch_rows(
        keys=list(keys), left_out=list(left_out), most=EXECUTIONS_AT_ONCE
    ):
        by_namespace.setdefault(row.namespace, []).append(row.id)
    moved = []
    for namespace, waiting in by_namespace.items():
        for first in range(0, len(waiting), EXECUTIONS_AT_ONCE):
            some = waiting[first : first + EXECUTIONS_AT_ONCE]
            moved += run_in_halves(partial(start_in_namespace, namespace), some, leave_out)
    return moved


@retried_atomic
def start_in_namespace(namespace: str, waiting: Sequence[UUID]) -> list[bool]:
    """Start these executions if they get their slots. Return True for each that started or waits for another key."""
    waiting = list(waiting)
    sql.lock_roots.fetch_rows(executions=waiting)
    rows = sql.start_executions.fetch_rows(executions=waiting, namespace=namespace)
    if started := [row for row in rows if row.has_started]:
        announce_work()
        executions.begin_without_worker(step for row in started for step in row.begins or [])
        with_paths = [row.id for row in started if row.has_paths]
        executions.advance_executions(with_paths, begun=with_paths)
    return [True for row in rows if row.has_moved]


def free_kept_slots() -> None:
    """Free slots of ended executions whose code could still run after the end, and has stopped by now."""
    sql.free_slots_of_executions.fetch_rows()
