"""Prepared statements: each connection plans a frequent statement once (PREPARE), and then runs it (EXECUTE).

The driver can prepare statements by itself. But it needs a pipeline to send several statements in one round trip. If a
statement in a pipeline fails, the driver assumes that the later ones are prepared, but the database never saw them.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

import psycopg
from django.db import DatabaseError, OperationalError, connections
from psycopg.errors import FeatureNotSupported, InvalidSqlStatementName
from psycopg.pq import TransactionStatus

from controlplane.core.database import ALIAS, connection
from controlplane.core.sql_book import load_blocks, number_parameters

PREPARED: "WeakKeyDictionary[psycopg.Connection[Any], dict[tuple[str, str], str]]" = WeakKeyDictionary()
"""The EXECUTE of each prepared statement of a connection."""
NUMBERS = count(1)
LOST = (InvalidSqlStatementName, FeatureNotSupported)
"""Errors of a prepared statement that is lost (as after DISCARD ALL), or whose result type a migration has changed."""

# Without these settings PostgreSQL would plan each call again, because it estimates that to be cheaper. Or it would
# keep a plan made for a small table while the table grows. It still scans a table of one row as a whole. Before
# PostgreSQL 18, the estimated cost of that scan would start JIT compilation at each call, if a host project's
# connection has JIT on.
PLANNED_ONCE = {"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "jit": "off"}
BEGIN = [f"set local {name} = {value}" for name, value in PLANNED_ONCE.items()]
SAVE_AND_BEGIN = "select " + ", ".join(
    f"set_config('controlplane.{name}', current_setting('{name}'), true), set_config('{name}', '{value}', true)"
    for name, value in PLANNED_ONCE.items()
)
# The rest of the transaction may be the host project's, so the settings are restored. Outside a transaction they end
# with the call.
END = "select " + ", ".join(
    f"set_config('{name}', current_setting('controlplane.{name}'), true)" for name in PLANNED_ONCE
)


def are_on() -> bool:
    ours = connections[ALIAS]
    ours.ensure_connection()
    return ours.connection.prepare_threshold is not None


def list_commands(keys: Sequence[tuple[str, str]]) -> tuple[list[str], int]:
    """Prepare the statements (app and name) that are new to this connection. Return the SQL that runs all of them.

    The first commands change settings, and inside a transaction the last one restores them. The caller skips the
    results of the first ones, so their number is returned too. A pooler may change the connection with each
    transaction. Then prepared statements do not work: set DATABASE_PREPARED_STATEMENTS to 0.
    """
    ours = connections[ALIAS]
    known = PREPARED.setdefault(ours.connection, {})
    commands = [known.get(key) or prepare(key, known) for key in keys]
    if ours.get_autocommit() and ours.connection.pgconn.transaction_status == TransactionStatus.IDLE:
        return [*BEGIN, *commands], len(BEGIN)
    return [SAVE_AND_BEGIN, *commands, END], 1


def prepare(key: tuple[str, str], known: dict[tuple[str, str], str]) -> str:
    """Prepare a statement on this connection. Add its EXECUTE to the `known` ones, and return it."""
    app, name = key
    takes = load_blocks(app)[name].takes
    prepared = f"controlplane_{name}_{next(NUMBERS)}"
    types = f"({', '.join(takes.values())})" if takes else ""
    with connection.cursor() as cursor:
        cursor.execute(f"prepare {prepared}{types} as {number_parameters(*key)}")
    params = f"({', '.join(f'%({param})s' for param in takes)})" if takes else ""
    known[key] = f"execute {prepared}{params}"
    return known[key]


@contextmanager
def preparing_again() -> Iterator[None]:
    """Raise OperationalError if the connection has lost its prepared statements.

    No row is at fault, so the whole transaction runs again, and no row is left out.
    """
    known = PREPARED.get(connections[ALIAS].connection, {})
    had_prepared = bool(known)
    try:
        yield
    except DatabaseError as error:
        if not (had_prepared and isinstance(error.__cause__, LOST)):
            raise
        known.clear()
        raise OperationalError(*error.args) from error.__cause__
