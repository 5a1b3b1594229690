"""Transactions that run again after temporary errors, and batches in which one bad row does not stop the others.

All code locks rows in one order (servers, roots of executions, jobs, attempts, each by id). A deadlock is still
possible in places: PostgreSQL ends one transaction, and only this module runs it again.
"""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import structlog
from django.db import DatabaseError, Error

from controlplane.core import database
from controlplane.core.database import connection, transaction
from controlplane.core.database.errors import READ_ONLY, classify
from controlplane.core.sql_book import compose_statement

log = structlog.get_logger()

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

TRIES = 4
"""Number of times that a transaction is tried."""


def is_database_down(error: Exception) -> bool:
    """Return True if the database takes no writes or cannot be reached. No other step can then succeed either."""
    temporary = classify(error)
    if temporary is None:
        return False
    return temporary is READ_ONLY or not can_connect()


def can_connect() -> bool:
    """Return True if this thread has a usable connection to the database, or can make one."""
    if connection.in_atomic_block:
        return bool(connection.is_usable())
    try:
        for _ in range(2):
            connection.ensure_connection()
            if connection.is_usable():
                return True
            connection.close()  # the pool returned a lost connection
    except Error:
        pass
    return False


def is_transient_error(error: Exception) -> bool:
    """Return True if an error is about this session or this moment. Smaller batches would fail as well."""
    return classify(error) is not None


def retry_from_start(call: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Run a transaction again after a temporary error that left no changes, on a new connection if needed.

    See `errors.Temporary.retries`. A lost connection also counts if it was lost before COMMIT was sent.
    """

    @wraps(call)
    def call_with_retries(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        if connection.in_atomic_block:
            return call(*args, **kwargs)  # part of a transaction, which must be run again as a whole
        for tries in range(1, TRIES + 1):
            try:
                with database.watching_changes() as may_have_changed:
                    return call(*args, **kwargs)
            except DatabaseError as error:
                temporary = classify(error)
                if temporary is None:
                    raise
                is_lost = temporary.ends_session and tries == 1 and not may_have_changed()
                if tries == TRIES or not (temporary.retries or is_lost):
                    raise
                log.warning("A transaction is run again", call=call.__qualname__, why=str(error.__cause__))
            time.sleep(random.uniform(0, 0.05 * tries))  # noqa: S311 - so that the two do not collide again
        raise AssertionError

    return call_with_retries


def retried_atomic(call: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Return a function that runs in a transaction, again after a temporary error (`retry_from_start`).

    Inside a transaction of its caller it runs as a part of that one, without retries.
    """
    return retry_from_start(transaction.atomic(call))


def record_left_out(step: str, row: object, error: Exception) -> None:
    """Record in the log, the metrics and on the pages which item was left out of which step, and why."""
    why = str(error).strip().split("\n")[0]
    log.error("A row was left out because it could not be written", step=step, row=str(row), error=why)
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(
                compose_statement("liveness", "note_row_left_out"), {"step": step, "row": str(row), "error": why[:1000]}
            )
    except DatabaseError as failure:
        if is_transient_error(failure):
            raise
        log.exception("A left-out row could not be recorded")


@contextmanager
def isolate_row(step: str, row: object) -> Iterator[None]:
    """Process one item in its own transactions. If the database refuses it, record that and continue."""
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
    """Process all items; if the database refuses that, each half in turn, down to the single item for `left_out`.

    `do` is one transaction or a part of one. When it fails, it has changed nothing.
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
