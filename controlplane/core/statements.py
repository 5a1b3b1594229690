"""Runs the statements of the books (sql_book.py), and makes rules expressions of the ORM."""

import re
from collections import namedtuple
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
import structlog
from django.db import DatabaseError, connection, transaction
from django.db.models import Field, Func
from psycopg.rows import namedtuple_row

from controlplane.core import transactions
from controlplane.core.sql_book import check_books, compose_statement

log = structlog.get_logger()

PIECE = re.compile(r"\bs\.(\w+)|%\((\w+)\)s")


class SqlExpression(Func):
    """SQL over a row `s` as an expression of the ORM: `s.name` is the field, or the annotation, of whatever is asked.

    It costs Python a tenth of what the same as Case, When and Q does, which counts on a page that is read each second.
    """

    def __init__(self, text: str, output_field: "Field[Any, Any]", **params: Any) -> None:
        self.columns = list(dict.fromkeys(column for column, _ in PIECE.findall(text) if column))
        super().__init__(*self.columns, output_field=output_field)
        self.text, self.params = text, params

    def as_sql(self, compiler: Any, connection: Any, **_: Any) -> tuple[str, list[Any]]:  # type: ignore[override]
        columns = dict(zip(self.columns, map(compiler.compile, self.source_expressions), strict=True))
        params: list[Any] = []

        def substitute_piece(match: re.Match[str]) -> str:
            column, param = match.groups()
            sql, values = columns[column] if column else ("%s", [self.params[param]])
            params.extend(values)
            return sql

        return PIECE.sub(substitute_piece, self.text), params


class Statements:
    """The statements of one app: `sql = Statements("jobs")`, then `sql.fetch_rows("claim_jobs", …)`."""

    def __init__(self, app: str) -> None:
        check_books(app)
        self.app = app

    @transactions.retry_deadlocks
    def fetch_result_sets(self, *names: str, **params: Any) -> list[list[Any]]:
        """Run the statements in one round trip; the rows of each, as named tuples.

        They commit together, but each sees what was committed before *it* began, so a lock
        that the first takes protects what the second reads.
        """
        result_sets = []
        with connection.cursor() as cursor:
            cursor.execute(";\n".join(compose_statement(self.app, name) for name in names), params)
            for number in range(len(names)):
                if number:
                    cursor.nextset()
                row = namedtuple("Row", [column.name for column in cursor.description])  # type: ignore[misc]
                result_sets.append([row._make(values) for values in cursor.fetchall()])
        return result_sets

    def fetch_rows(self, *names: str, **params: Any) -> list[Any]:
        """The rows of the last of the statements."""
        return self.fetch_result_sets(*names, **params)[-1]

    def fetch_prepared(self, name: str, **params: Any) -> list[Any]:
        """The rows of a statement that is said all the time: after a few times a connection plans it no more.

        Django's own cursor puts the parameters into the text, so that every statement is another.
        """
        connection.ensure_connection()
        bare: Any = psycopg.Cursor(connection.connection, row_factory=namedtuple_row)
        make = connection.make_debug_cursor if connection.queries_logged else connection.make_cursor
        with make(bare) as cursor:
            cursor.execute(compose_statement(self.app, name), params)
            return cursor.fetchall()

    def sweep_rows(
        self, name: str, then: Callable[[list[Any]], object] = len, left_out: list[Any] | None = None, **params: Any
    ) -> list[Any]:
        """The rows of a sweeping statement. When one of its rows makes it fail, those that can be written without it.

        What follows from the rows, `then` does in the same transaction. Beside `name` there is `name_due`, which
        only lists the ids it is about to touch, and both obey `only` (ids, or null for all). The ids of those that
        could not be written are added to `left_out`; of a sweep in batches the next one passes them by.
        """
        bad: list[Any] = [] if left_out is None else left_out

        def run_statement(only: Sequence[Any] | None) -> list[Any]:
            with prefer_key_lookups():
                rows = self.fetch_rows(name, only=None if only is None else list(only), **params)
                then(rows)
            return rows

        def leave_out(id: Any, error: DatabaseError) -> list[Any]:
            transactions.record_left_out(name, id, error)
            bad.append(id)
            return []

        if not bad:
            try:
                return transactions.retry_deadlocks(run_statement)(None)
            except DatabaseError as error:
                if transactions.is_transient_error(error):
                    raise
                log.exception("A sweep failed; trying without what cannot be written", sweep=name)
        room = {"batch": params["batch"] + len(bad)} if "batch" in params else {}
        with prefer_key_lookups():
            due = [row.id for row in self.fetch_rows(f"{name}_due", only=None, **{**params, **room})]
        ids = [id for id in due if id not in set(bad)][: params.get("batch")]
        return transactions.run_in_halves(transactions.retry_deadlocks(run_statement), ids, leave_out) if ids else []

    def build_expression(self, name: str, output_field: "Field[Any, Any]", **params: Any) -> SqlExpression:
        """The piece `name` as an expression of the ORM."""
        return SqlExpression(compose_statement(self.app, name), output_field, **params)

    def fetch_row(self, *names: str, **params: Any) -> Any | None:
        """The only row of the last of the statements, or None."""
        return next(iter(self.fetch_rows(*names, **params)), None)


@contextmanager
def prefer_key_lookups() -> Iterator[None]:
    """A transaction in which rows are looked up by their keys.

    A batch is small beside its tables, but PostgreSQL, which cannot know how many rows a step leaves, would often
    rather read the whole of them.
    """
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("set local enable_hashjoin = off; set local enable_mergejoin = off; set local jit = off")
        yield
