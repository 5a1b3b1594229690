"""Sessions of the test's own database that wait for a lock. Other tests wait in theirs at the same time."""

from typing import Any

WAITERS = """
    select count(distinct pid) from pg_locks join pg_stat_activity using (pid)
     where not granted and datname = current_database() and (%(types)s::text[] is null or locktype = any(%(types)s))"""


def count_waiters(cursor: Any, *types: str) -> int:
    """Return how many sessions wait for a lock of one of these types, or of any type."""
    cursor.execute("select pg_stat_clear_snapshot()")  # a transaction reads the sessions once
    cursor.execute(WAITERS, {"types": list(types) or None})
    return int(cursor.fetchone()[0])
