"""Starts of executions with limits: an execution takes all its slots at once, and holds them until its end.

Until it starts, the execution and its first steps are parked. A query finds the executions whose slots are free by
their state, without notes that a crash could lose. Executions that wait for a key start in their order,
but jobs may overtake them.

Locks: the keys are locked after the roots and the executions. Then only parked and BLOCKED steps of these trees are
locked. A transaction that holds one of these locks never waits for a key.
"""

from uuid import UUID

from controlplane.core.transactions import retried_atomic
from jobs.services import executions
from jobs.services.hints import announce_work
from jobs.sql import sql

EXECUTIONS_AT_ONCE = 100


def start_executions() -> int:
    """Start executions whose slots are free now. Return how many started or wait for another key."""
    total = 0
    while moved := start_some():
        total += moved
    return total


def start_some() -> int:
    """Start some executions, a hundred in a transaction. Return the same number as `start_executions`."""
    by_namespace: dict[str, list[UUID]] = {}
    for row in sql.list_executions_to_start.fetch_rows(most=EXECUTIONS_AT_ONCE):
        by_namespace.setdefault(row.namespace, []).append(row.id)
    total = 0
    for namespace, waiting in by_namespace.items():
        for first in range(0, len(waiting), EXECUTIONS_AT_ONCE):
            total += start_in_namespace(namespace, waiting[first : first + EXECUTIONS_AT_ONCE])
    return total


@retried_atomic
def start_in_namespace(namespace: str, waiting: list[UUID]) -> int:
    """Start these executions if they get their slots. Return how many started or wait for another key."""
    sql.lock_roots.fetch_rows(executions=waiting)
    rows = sql.start_executions.fetch_rows(executions=waiting, namespace=namespace)
    if started := [row for row in rows if row.has_started]:
        announce_work()
        executions.begin_without_worker(step for row in started for step in row.begins or [])
        with_paths = [row.id for row in started if row.has_paths]
        executions.advance_executions(with_paths, begun=with_paths)
    return sum(row.has_moved for row in rows)


def free_kept_slots() -> None:
    """Free slots of ended executions whose code could still run after the end, and has stopped by now."""
    sql.free_slots_of_executions.fetch_rows()
