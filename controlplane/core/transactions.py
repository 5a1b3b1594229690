"""Run transactions again after temporary errors, and process batches so that one bad row does not stop the others.

All code locks rows in the same order: servers, roots of executions, jobs, attempts, and each of these by id. In a few
places a deadlock is still possible. PostgreSQL then ends one transaction, and this module runs it again.
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
    """Return True if the database cannot be reached or takes no writes. Then no other step can succeed either."""
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
    """Return True if an error is temporary, so that smaller batches would fail as well."""
    return classify(error) is not None


def retry_from_start(call: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Run a transaction again after a temporary error that left no changes, on a new connection if needed.

    These errors have `errors.Temporary.retries`. The loss of the connection is also one, if it was lost before COMMIT
    was sent.
    """

    @wraps(call)
    def call_with_retries(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        if connection.in_atomic_block:
            return call(*args, **kwargs)  # the whole outer transaction must run again, not only this part
        for tries in range(1, TRIES + 1):
            try:
                with database.ChangeWatch() as watch:
                    return call(*args, **kwargs)
            except DatabaseError as error:
                temporary = classify(error)
                if temporary is None:
                    raise
                is_lost = temporary.ends_session and tries == 1 and not watch.changed
                if tries == TRIES or not (temporary.retries or is_lost):
                    raise
                log.warning("A transaction is run again", call=call.__qualname__, why=str(error.__cause__))
            time.sleep(random.uniform(0, 0.05 * tries))  # noqa: S311 - so that the two do not collide again
        raise AssertionError

    return call_with_retries


def retried_atomic(call: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Return a function that runs in a transaction, and runs again after a temporary error (`retry_from_start`).

    If its caller already has a transaction, it runs as part of that transaction, without retries.
    """
    return retry_from_start(transaction.atomic(call))


def record_left_out(step: str, row: object, error: Exception) -> None:
    """Record that a step left out an item, and why: in the log, in the metrics and on the pages."""
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
    """Process one item in separate transactions. If the database refuses it, record that and continue."""
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
    """Process all items. If that fails, process each half alone, and so on. Pass single bad items to `left_out`.

    `do` is a transaction or a savepoint: if it fails, it has changed nothing.
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
