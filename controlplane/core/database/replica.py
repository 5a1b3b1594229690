"""Read rows that no longer change from a read replica (DATABASE_READ_URL), and everything else from the primary.

A replica lags behind. Servers and live jobs are never read from it, because the lag would look like silence.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import structlog
from django.conf import settings
from django.db import Error, connections
from django.http import HttpRequest, HttpResponse

from controlplane.core.database import ALIAS

log = structlog.get_logger()

REPLICA = "replica"
"""Alias of the replica."""
AWAY_FOR = 5.0
"""Seconds until a process tries a replica again after a failed read."""
PRIMARY_FOR = 10
"""Seconds for which a session reads the primary after it has changed something."""
COOKIE = "changed_at"
POSITION = "select pg_current_wal_lsn()::text, extract(epoch from clock_timestamp())::float8"
LAG = """select case when pg_is_in_recovery() and pg_last_wal_replay_lsn() < %s::pg_lsn
                     then %s - extract(epoch from pg_last_xact_replay_timestamp())::float8 end"""

Found = TypeVar("Found")


class ReplicaState:
    away_until = 0.0
    """Time of the monotonic clock before which the replica is not tried again."""


state = ReplicaState()


def has_replica() -> bool:
    return REPLICA in settings.DATABASES


def may_read(request: HttpRequest) -> bool:
    """Return True if there is a replica, and the session of this request has changed nothing lately."""
    if not has_replica() or time.monotonic() < state.away_until:
        return False
    changed = request.COOKIES.get(COOKIE, "")
    return not (changed.isascii() and changed.isdigit() and abs(time.time() - int(changed[:12])) < PRIMARY_FOR)


@contextmanager
def on_replica() -> Iterator[Any]:
    """Read from the replica in this `with` block, in this thread."""
    primary, replica = connections[ALIAS], connections[REPLICA]
    connections[ALIAS] = replica
    try:
        yield replica
    finally:
        connections[ALIAS] = primary


def read_past(request: HttpRequest, read: Callable[[], Found], *, is_past: Callable[[Found], object] = bool) -> Found:
    """Return the result of `read` on the replica. Read the primary if the replica fails or has an unfinished result.

    `is_past(result)` is False for a result that may still change. `read` must not return a lazy result.
    """
    if may_read(request) and not connections[ALIAS].in_atomic_block:
        try:
            with on_replica():
                found = read()
            if is_past(found):
                return found
        except Error as error:
            note_away(error)
    return read()


def note_away(error: Exception) -> None:
    state.away_until = time.monotonic() + AWAY_FOR
    connections[REPLICA].close()
    log.warning("The read replica could not be read: the primary is read", why=str(error).strip().split("\n")[0])


def describe_replica() -> str:
    """Return a sentence about the replica for the overview, or an empty text without a replica."""
    if not has_replica():
        return ""
    lag = read_lag() if time.monotonic() >= state.away_until else None
    return "The read replica is away: the primary is read." if lag is None else f"Read replica: {lag:.0f} s behind"


def read_lag() -> float | None:
    """Return how many seconds the replica is behind the primary, or None if it cannot be read."""
    with connections[ALIAS].cursor() as cursor:
        cursor.execute(POSITION)
        present = cursor.fetchone()
    try:
        with connections[REPLICA].cursor() as cursor:
            cursor.execute(LAG, present)
            return max(0.0, cursor.fetchone()[0] or 0.0)
    except Error as error:
        note_away(error)
        return None


class PrimaryAfterChange:
    """Middleware that lets a session read the primary for PRIMARY_FOR seconds after each change."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        changes = request.method not in ("GET", "HEAD", "OPTIONS", "TRACE")
        if changes and has_replica() and settings.SESSION_COOKIE_NAME in request.COOKIES:
            response.set_cookie(
                COOKIE, str(int(time.time())), max_age=PRIMARY_FOR, httponly=True, samesite="Lax",
                secure=request.is_secure(),
            )  # fmt: skip
        return response
