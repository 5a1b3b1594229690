"""Temporary errors of the database. They concern the session or the moment, not the request or its rows.

This is the only list of them. PostgreSQL's codes: https://www.postgresql.org/docs/current/errcodes-appendix.html
"""

from typing import NamedTuple

import psycopg
from django.db import Error, OperationalError
from psycopg_pool import PoolTimeout


class Temporary(NamedTuple):
    """Kind of temporary error. `why` is a sentence for callers, without its full stop."""

    why: str
    ends_session: bool = False
    """True if the connection must be closed, because it is lost or its server no longer takes writes."""
    retries: bool = False
    """True if a repetition of the transaction may succeed at once. PostgreSQL has rolled it back."""


UNREACHABLE = Temporary("The database cannot be reached just now", ends_session=True)
BUSY = Temporary("No connection to the database was free in time")
READ_ONLY = Temporary(
    "The database takes no writes just now: it is a standby or read-only", ends_session=True, retries=True
)
MOVING = Temporary("The database is being stopped, started or moved to another server", ends_session=True, retries=True)
SESSION_ENDED = Temporary("The database ended this session after a timeout", ends_session=True, retries=True)
CONFLICT = Temporary("This transaction conflicted with another one", retries=True)
LOCKED = Temporary("Another transaction kept a lock for too long")
TOO_SLOW = Temporary("A statement took longer than the database allows")
PREPARED_IN_VAIN = Temporary("The session lost its prepared statements", retries=True)

BY_SQLSTATE = {
    "08": UNREACHABLE,
    "0A": PREPARED_IN_VAIN,  # a migration changed the type of a result; see classify
    "25006": READ_ONLY,
    "25P03": SESSION_ENDED,  # idle in a transaction
    "25P04": SESSION_ENDED,  # the transaction took too long
    "26": PREPARED_IN_VAIN,  # as after DISCARD ALL
    "40": CONFLICT,
    "53": Temporary("The database has no room for more: disk, memory or connections"),
    "55006": Temporary("An object of the database is in use"),
    "55P03": LOCKED,
    "57": MOVING,
    "57014": TOO_SLOW,
    "57P03": Temporary("The database is starting", ends_session=True),
    "57P05": SESSION_ENDED,  # idle
    "58": Temporary("The machine of the database has a fault"),
    "72": CONFLICT,
}
"""Kinds of errors by error code, or by the first two characters of the code (its class)."""


CONTENDED = (CONFLICT, LOCKED, TOO_SLOW)
"""Errors that a single row of a statement may cause, because of another transaction. The other rows may succeed
alone."""


def classify(error: BaseException) -> Temporary | None:
    """Return the kind of a temporary error, or None for an error of the request, its rows or our code."""
    if not isinstance(error, Error | psycopg.Error):
        return None
    cause = error.__cause__ if isinstance(error, Error) else error
    code = getattr(cause, "sqlstate", None)
    if code is None:
        return read_without_code(error, cause)
    if code.startswith("0A") and not isinstance(error, OperationalError):
        return None  # the statement is unsupported; prepared.py raises the other kind
    return BY_SQLSTATE.get(code) or BY_SQLSTATE.get(code[:2])


def describe(error: BaseException) -> str:
    """Return one line for logs: the kind of a temporary error, and the first line of the database's message."""
    why = (classify(error) or UNREACHABLE).why
    return f"{why}: {str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__}"


def read_without_code(error: BaseException, cause: BaseException | None) -> Temporary | None:
    """Classify an error of the driver itself, or of a connection that could not be made."""
    if isinstance(cause, PoolTimeout):
        return BUSY
    names = {kind.__name__ for kind in (type(error), type(cause))}
    return UNREACHABLE if names & {"OperationalError", "InterfaceError", "PoolClosed"} else None
