"""Detects a failover: compares the database's timeline with the timeline that the control plane has used so far.

A promoted standby or a restored backup may lack the last transactions. PostgreSQL then begins a new timeline, unless
somebody started the files of a backup as they were. In that case the write-ahead log ends before a position that this
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
    """Highest position of the write-ahead log that this process has seen. The log before it was on disk.

    Several threads may compare at once. So each thread reads `highest` before its query and compares the result with
    that value. Another thread may note a later position during the query.
    """

    highest: int | None = None

    def note(self, position: int, lost: int | None) -> None:
        """Note a position. The highest position becomes lower only if the log has lost bytes."""
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
    """Compare the timeline and record a new one. Each check and each process of the control plane calls this."""
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
