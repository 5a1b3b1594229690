"""Compares the timeline of the database with the one that the control plane has used so far.

A promoted standby or a restored backup may lack the last transactions. PostgreSQL then counts a new timeline, except
when the files of a backup are started as they are. In this case the write-ahead log ends before a position that this
process has already seen.
"""

from typing import Any

import psycopg
import structlog
from django.db import DatabaseError

from controlplane.core.sql_book import compose_statement
from liveness.sql import sql

log = structlog.get_logger()

UNSUPPORTED = (
    psycopg.errors.FeatureNotSupported,
    psycopg.errors.InsufficientPrivilege,
    psycopg.errors.ObjectNotInPrerequisiteState,
    psycopg.errors.ReadOnlySqlTransaction,
    psycopg.errors.UndefinedColumn,
    psycopg.errors.UndefinedFunction,
    psycopg.errors.UndefinedTable,
)
"""Errors of a database that is not migrated yet, or that does not show its timeline."""


class LogPosition:
    """Highest position of the write-ahead log that this process has seen. Everything before it was on disk.

    Threads compare at the same time. So each reads `highest` before its query, and compares the result with that. A
    position that another thread notes during the query may be a later one.
    """

    highest: int | None = None

    def note(self, position: int, lost: int | None) -> None:
        """Note a position. Only a log that has lost bytes lowers the highest one."""
        self.highest = position if lost is not None else max(position, self.highest or 0)


def count_lost(position: int, before: int | None) -> int | None:
    """Return how many bytes of the log are missing before the position `before`, or None."""
    return before - position if before is not None and position < before else None


seen = LogPosition()


def compare_on_connection(connection: psycopg.Connection[Any]) -> None:
    """Compare the timeline on a new connection, before anything else uses it."""
    before = seen.highest
    try:
        row = connection.execute(compose_statement("liveness", "compare_timeline"), {}).fetchone()
        if row is not None:
            _, _, position, known, same_server = row
            lost = count_lost(position, before)
            if not (known and same_server) or lost is not None:
                with connection.transaction():
                    for name in ("lock_timelines", "note_timeline"):
                        noted = connection.execute(compose_statement("liveness", name), {"lost_bytes": lost}).fetchone()
                report(noted)
            seen.note(position, lost)
        if not connection.autocommit:
            connection.commit()
    except UNSUPPORTED as error:
        if not connection.autocommit:
            connection.rollback()
        log.debug("The timeline of the database was not compared", why=str(error).strip())


def compare_timeline() -> None:
    """Compare the timeline, and note a new one. Called at each check and by each process of the control plane."""
    before = seen.highest
    try:
        present = sql.compare_timeline.fetch_row()
    except DatabaseError as error:
        if not isinstance(error.__cause__, UNSUPPORTED):
            raise
        log.debug("The timeline of the database was not compared", why=str(error).strip())
        return
    if present is None:
        return
    lost = count_lost(present.position, before)
    if not (present.known and present.same_server) or lost is not None:
        report(sql.note_timeline.after(sql.lock_timelines).fetch_row(lost_bytes=lost))
    seen.note(present.position, lost)


def report(noted: Any) -> None:
    """Log a new timeline. Do nothing for an ordinary restart, or for the first timeline."""
    if noted is None:
        return
    _, timeline, former, workers, last_change_at = noted
    if former is not None:
        log.error(
            "The database is on a new timeline: transactions may be lost, and no job is claimed until each worker has "
            "listed what it runs",
            timeline=timeline, former=former, workers=workers, last_change=str(last_change_at),
        )  # fmt: skip


def forget_unheard_servers(runner_interval: float) -> int:
    """Let claims continue without workers that have listed what they run. Return how many."""
    return sql.forget_unheard_servers.fetch_only_row(runner_interval=runner_interval).workers
