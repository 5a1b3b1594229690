"""Django's connections in a pool process, around each attempt as around each request. It imports no Django itself."""

from __future__ import annotations

import select
import sys
from collections.abc import Iterator
from typing import IO, Any


def begin() -> None:
    """Forget logged queries, and close connections that are broken or too old."""
    if django := sys.modules.get("django.db"):
        django.reset_queries()
        for connection in _connections(django):
            _close_if_unfit(connection)


def end() -> str:
    """Close connections that are broken or too old. Return why the process must be replaced, or an empty text."""
    if django := sys.modules.get("django.db"):
        for connection in _connections(django):
            if connection.in_atomic_block:
                return f"it left a transaction of the database {connection.alias} open"
            _close_if_unfit(connection)
    return ""


def wait_for_call(calls: IO[bytes], patience: float) -> None:
    """Return when a call may be there. After `patience` seconds, close the connections that no setting keeps open.

    With CONN_MAX_AGE 0 a connection lasts as long as attempts follow each other without a pause.
    """
    django = sys.modules.get("django.db")
    if django is None or not any(one.connection is not None for one in _connections(django)):
        return
    if not select.select([calls], [], [], patience)[0]:
        close_idle()


def close_idle() -> None:
    """Close the connections of this thread that no setting keeps open."""
    if django := sys.modules.get("django.db"):
        for connection in _connections(django):
            if connection.connection is not None and connection.settings_dict["CONN_MAX_AGE"] == 0:
                connection.close()


def _close_if_unfit(connection: Any) -> None:
    if connection.settings_dict["CONN_MAX_AGE"] == 0:
        connection.close_at = None
    connection.close_if_unusable_or_obsolete()


def _connections(django: Any) -> Iterator[Any]:
    yield from django.connections.all(initialized_only=True)
