"""Count the bytes that the jobs of each token store, for the limit STORED_BYTES_LIMIT.

Statements that store or delete content add a row with the difference. This module decides if they count at all, adds up
these rows, and counts everything again once a day.
"""

from dataclasses import replace
from uuid import UUID

import structlog
from django.db import DatabaseError

from controlplane.core.statements import Row, Statement
from controlplane.core.transactions import is_database_down, retried_atomic
from jobs.conf import conf
from jobs.sql import sql
from liveness.services import timetable

log = structlog.get_logger()

NO_ROOM = "… further lines are not kept: the jobs of this token have reached their limit of bytes (STORED_BYTES_LIMIT)"
DAY = 86400


def counts_bytes() -> bool:
    """Return True if statements must count the bytes that they store."""
    return conf().stored_bytes_limit is not None


def counting(statement: Statement[Row]) -> Statement[Row]:
    """Return the statement, or its counting variant if bytes are counted."""
    return replace(statement, name=f"{statement.name}_counted") if counts_bytes() else statement


@retried_atomic
def add_up() -> int:
    """Replace the rows of each owner by one; return how many there were. Does nothing if another process does it."""
    if not sql.try_lock_stored_bytes.fetch_only_row().held:
        return 0
    return sql.add_up_stored_bytes.fetch_only_row().rows


@retried_atomic
def recount(owner: UUID) -> int:
    """Count all bytes of an owner again, and return them."""
    sql.lock_stored_bytes.fetch_only_row()
    # This is a separate statement, so its snapshot is taken after the lock.
    return sql.recount_stored_bytes.fetch_only_row(owner=owner).bytes


def recount_all() -> None:
    """Count the bytes of each owner again. If that fails for an owner, its sum stays."""
    for row in sql.list_storing_owners.fetch_rows():
        try:
            recount(row.id)
        except DatabaseError as error:
            if is_database_down(error):
                raise
            log.exception("The bytes of a token could not be counted", token=str(row.id))


def forget() -> None:
    """Delete all sums, because they are not updated without a limit."""
    sql.forget_stored_bytes.fetch_rows()


def run_count() -> None:
    """Add up the rows since the last run, and count everything again once a day."""
    if timetable.try_begin_task("recount_stored_bytes", DAY):
        recount_all()
    add_up()
