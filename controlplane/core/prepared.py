"""What is run all the time is planned once by each connection: PREPARE, and from then on EXECUTE.

The driver could prepare by itself, but several statements are one round trip only in a pipeline of its, and of one
that fails there it takes what came after, which the database never saw, for prepared.
"""

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

import psycopg
from django.db import DatabaseError, OperationalError

from controlplane.core import transactions
from controlplane.core.database import connection
from controlplane.core.sql_book import load_blocks, number_parameters
from controlplane.core.statements import Row, Statement, fetch_result_sets, read_result_sets

PREPARED: "WeakKeyDictionary[psycopg.Connection[Any], dict[tuple[str, str], str]]" = WeakKeyDictionary()
"""By connection, the names under which it has statements of the books."""
NUMBERS = count(1)

# Left to choose, PostgreSQL would plan each time, as it finds that cheaper; and a plan that was made for a small table
# is kept while it grows. A table of one row is read as a whole even so, and before PostgreSQL 18 that counts as so dear
# that the statement would be compiled at each call: a host's connection may have that on.
PLANNED_ONCE = {"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "jit": "off"}
BEGIN = "select " + ", ".join(
    f"set_config('controlplane.{name}', current_setting('{name}'), true), set_config('{name}', '{value}', true)"
    for name, value in PLANNED_ONCE.items()
)
# What else is in a transaction may be a host's.
END = "select " + ", ".join(
    f"set_config('{name}', current_setting('controlplane.{name}'), true)" for name in PLANNED_ONCE
)


@transactions.retry_from_start
def fetch_prepared_sets(*statements: Statement[Any], **params: Any) -> tuple[list[Any], ...]:
    """As `fetch_result_sets`, of what is run all the time.

    A pooler that gives each transaction another connection of its own knows no prepared statements; where
    DATABASE_PREPARED_STATEMENTS is 0 there are none.
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
        if not (had_prepared and isinstance(error.__cause__, transactions.PREPARED_FOR_NOTHING)):
            raise
        names.clear()
        # No fault of a row, whatever else is in the transaction: it is begun anew, and prepares anew.
        raise OperationalError(*error.args) from error.__cause__


def fetch_prepared_rows(statement: Statement[Row], **params: Any) -> list[Row]:
    """The rows of a statement that is run all the time; see `Statement.after`."""
    return fetch_prepared_sets(*statement.before, statement, **params)[-1]


def executions(statements: Sequence[Statement[Any]], names: dict[tuple[str, str], str]) -> Iterator[str]:
    """The EXECUTE of each; one that this connection does not have yet is prepared."""
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
