"""Prepared statements: each connection plans a frequent statement once (PREPARE), and then runs it (EXECUTE).

The driver can prepare statements by itself. But it needs a pipeline to send several statements in one round trip. If a
statement in a pipeline fails, the driver assumes that the later ones are prepared, but the database never saw them.
"""

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

import psycopg
from django.db import DatabaseError, OperationalError
from psycopg.errors import FeatureNotSupported, InvalidSqlStatementName

from controlplane.core import transactions
from controlplane.core.database import connection
from controlplane.core.sql_book import load_blocks, number_parameters
from controlplane.core.statements import Row, Statement, fetch_result_sets, read_result_sets

PREPARED: "WeakKeyDictionary[psycopg.Connection[Any], dict[tuple[str, str], str]]" = WeakKeyDictionary()
"""Names of the prepared statements of each connection."""
NUMBERS = count(1)
LOST = (InvalidSqlStatementName, FeatureNotSupported)
"""Errors of a prepared statement that is lost (as after DISCARD ALL), or whose result type a migration has changed."""

# Without these settings PostgreSQL would plan each call again, because it estimates that to be cheaper. Or it would
# keep a plan made for a small table while the table grows. It still scans a table of one row as a whole. Before
# PostgreSQL 18, the estimated cost of that scan would start JIT compilation at each call, if a host project's
# connection has JIT on.
PLANNED_ONCE = {"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "jit": "off"}
BEGIN = "select " + ", ".join(
    f"set_config('controlplane.{name}', current_setting('{name}'), true), set_config('{name}', '{value}', true)"
    for name, value in PLANNED_ONCE.items()
)
# The rest of the transaction may be the host project's, so the settings are restored.
END = "select " + ", ".join(
    f"set_config('{name}', current_setting('controlplane.{name}'), true)" for name in PLANNED_ONCE
)


@transactions.retry_from_start
def fetch_prepared_sets(*statements: Statement[Any], **params: object) -> tuple[list[Any], ...]:
    """Run frequent statements as prepared statements, in one round trip. The result is that of `fetch_result_sets`.

    A pooler may change the connection with each transaction. Then prepared statements do not work: set
    DATABASE_PREPARED_STATEMENTS to 0.
    """
    connection.ensure_connection()
    if connection.connection.prepare_threshold is None:
        return fetch_result_sets(*statements, **params)
    names = PREPARED.setdefault(connection.connection, {})
    had_prepared = bool(names)
    texts = [BEGIN, *executions(statements, names), END]
    try:
        with connection.cursor() as cursor:
            cursor.execute(";\n".join(texts), params)
            cursor.nextset()
            return read_result_sets(cursor, statements)
    except DatabaseError as error:
        if not (had_prepared and isinstance(error.__cause__, LOST)):
            raise
        names.clear()
        # No row is at fault. The whole transaction runs again, and prepares again.
        raise OperationalError(*error.args) from error.__cause__


def fetch_prepared_rows(statement: Statement[Row], **params: object) -> list[Row]:
    """Return the rows of a frequent statement, run as a prepared statement. See `Statement.after`."""
    return fetch_prepared_sets(*statement.before, statement, **params)[-1]


def executions(statements: Sequence[Statement[Any]], names: dict[tuple[str, str], str]) -> Iterator[str]:
    """Yield the EXECUTE of each statement. Prepare it first if this connection has not done so."""
    for statement in statements:
        key = statement.app, statement.name
        takes = load_blocks(statement.app)[statement.name].takes
        if key not in names:
            name = f"controlplane_{statement.name}_{next(NUMBERS)}"
            types = f"({', '.join(takes.values())})" if takes else ""
            with connection.cursor() as cursor:
                cursor.execute(f"prepare {name}{types} as {number_parameters(*key)}")
            names[key] = name
        params = f"({', '.join(f'%({param})s' for param in takes)})" if takes else ""
        yield f"execute {names[key]}{params}"
