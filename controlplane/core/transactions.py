"""Each item for itself: what the database refuses of one delays that one alone, and is named.

Where a ring of waits stays thinkable although everybody locks in one order (servers, roots of executions, jobs,
attempts, each by id), the transaction that PostgreSQL ends to break it is begun anew: here, and nowhere else.
"""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import structlog
from django.db import DatabaseError, OperationalError
from psycopg.errors import DeadlockDetected, FeatureNotSupported, InvalidSqlStatementName

from controlplane.core.database import connection, transaction
from controlplane.core.sql_book import compose_statement

log = structlog.get_logger()

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

TRIES = 4
"""Of a transaction that is begun anew."""
PREPARED_FOR_NOTHING = (InvalidSqlStatementName, FeatureNotSupported)
"""A prepared statement is not there, as after DISCARD ALL; or a migration changed the type of what it answers."""
TRANSIENT_SQLSTATES = ("08", "53", "57", "25P03", "40", "55P03", "26", "0A")
"""Of the connection, resources, a shutdown or a limit on statements, a suspended transaction, a ring that stays,
a lock that somebody keeps for too long, as who builds an index does, what was prepared for nothing (prepared.py)."""


def is_database_down(error: Exception) -> bool:
    """Whether the database is away altogether: then no other step can do better than the one that failed."""
    return isinstance(error, OperationalError) and (connection.connection is None or not connection.is_usable())


def is_transient_error(error: Exception) -> bool:
    """Whether this is no word of the database on what was asked, but on the moment: with each row for itself it would
    fare no better, and wait as long again for each.

    See TRANSIENT_SQLSTATES; the driver itself has no code.
    """
    code = getattr(error.__cause__, "sqlstate", None)
    return isinstance(error, OperationalError) and (code is None or code.startswith(TRANSIENT_SQLSTATES))


def retry_from_start(call: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """A call that is a transaction, or many, begun anew when nothing but the moment was in its way: it was ended to
    break a ring of waits, or what its connection had prepared was of no use any more."""

    @wraps(call)
    def call_with_retries(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        if connection.in_atomic_block:
            return call(*args, **kwargs)  # a part of a transaction: the whole is to begin anew
        for tries in range(1, TRIES + 1):
            try:
                return call(*args, **kwargs)
            except DatabaseError as error:
                if tries == TRIES or not isinstance(error.__cause__, (DeadlockDetected, *PREPARED_FOR_NOTHING)):
                    raise
                log.warning("A transaction is begun anew", call=call.__qualname__, why=str(error.__cause__))
            time.sleep(random.uniform(0, 0.05 * tries))  # noqa: S311 - so that the two do not meet again
        raise AssertionError

    return call_with_retries


def retried_atomic(call: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """A call that is one transaction, or a part of its caller's; see `retry_from_start`."""
    return retry_from_start(transaction.atomic(call))


def record_left_out(step: str, row: object, error: Exception) -> None:
    """Say in the log, the metrics and on the pages which item is left out of what, and why."""
    why = str(error).strip().split("\n")[0]
    log.error("A row is left out: it could not be written", step=step, row=str(row), error=why)
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(
                compose_statement("liveness", "note_row_left_out"), {"step": step, "row": str(row), "error": why[:1000]}
            )
    except DatabaseError as failure:
        if is_transient_error(failure):
            raise
        log.exception("That a row is left out could not be noted")


@contextmanager
def isolate_row(step: str, row: object) -> Iterator[None]:
    """What is done to one item, in transactions of its own: when the database refuses it, the rest goes on."""
    try:
        yield
    except DatabaseError as error:
        if is_transient_error(error):
            raise
        record_left_out(step, row, error)


def run_in_halves(
    do: Callable[[Sequence[Any]], list[Result]],
    items: Sequence[Any],
    left_out: Callable[[Any, DatabaseError], list[Result]],
) -> list[Result]:
    """Do it to all, and when the database refuses that, to each half, down to the one that is `left_out`.

    `do` is a transaction or a part of one, and nothing of it is done when it fails.
    """
    try:
        return do(items)
    except DatabaseError as error:
        if is_transient_error(error):
            raise
        if len(items) == 1:
            return left_out(items[0], error)
        if not items:
            raise
    half = len(items) // 2
    return run_in_halves(do, items[:half], left_out) + run_in_halves(do, items[half:], left_out)
