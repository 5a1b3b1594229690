"""Run the statements of the books (sql_book.py), and use rules as ORM expressions."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Generic, NamedTuple, TypeVar, get_args, get_type_hints, overload
from uuid import UUID

import structlog
from django.db import DatabaseError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper
from django.db.models import Field, Func
from django.db.models.sql.compiler import SQLCompiler

from controlplane.core import prepared, transactions
from controlplane.core.database import connection, transaction
from controlplane.core.sql_book import BookError, check_books, compose_statement, load_blocks

log = structlog.get_logger()

RowKey = UUID | int | str
"""Type of the ids by which a sweep identifies its rows."""

Row = TypeVar("Row", bound=tuple[Any, ...])
Other = TypeVar("Other", bound=tuple[Any, ...])

PIECE = re.compile(r"\bs\.(\w+)|%\((\w+)\)s")


class SqlExpression(Func):
    """ORM expression from SQL about a row `s`. In it, `s.name` is a field or an annotation of the queried model.

    It takes a tenth of the Python time of Case, When and Q. This matters on pages that reload every second.
    """

    def __init__(self, text: str, output_field: "Field[Any, Any]", **params: object) -> None:
        self.pieces, self.columns = split_expression(text)
        super().__init__(*self.columns, output_field=output_field)
        self.params = params

    def as_sql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **_: object) -> tuple[str, list[Any]]:  # type: ignore[override]
        columns = dict(zip(self.columns, map(compiler.compile, self.source_expressions), strict=True))
        params: list[Any] = []
        parts = []
        for text, column, param in self.pieces:
            parts.append(text)
            if column:
                sql, values = columns[column]
                parts.append(sql)
                params.extend(values)
            elif param:
                parts.append("%s")
                params.append(self.params[param])
        return "".join(parts), params


@cache
def split_expression(text: str) -> tuple[list[tuple[str, str, str]], list[str]]:
    """Split SQL text at each `s.column` and each parameter. Return the pieces, and the distinct columns."""
    parts = [part or "" for part in (*PIECE.split(text), None, None)]
    pieces = list(zip(parts[::3], parts[1::3], parts[2::3], strict=True))
    return pieces, list(dict.fromkeys(column for _, column, _ in pieces if column))


@dataclass(frozen=True)
class Statement(Generic[Row]):
    """Statement of a book with the class of its rows: `sql.claim_jobs.fetch_rows(…)`."""

    app: str
    name: str
    row: type[Row]
    before: "tuple[Statement[Any], ...]" = ()
    """Statements that run first, in the same round trip."""
    keeps_plan: bool = True

    def after(self, *others: "Statement[Any]") -> "Statement[Row]":
        """Return this statement with other statements that run before it, in the same round trip.

        All of them commit together. Each statement sees the changes that were committed before it began. So a lock that
        the first statement takes protects the rows that the second statement reads.
        """
        return replace(self, before=others)

    def planned_at_each_call(self) -> "Statement[Row]":
        """Return this statement, planned at each call for its parameters, if these need another plan."""
        return replace(self, keeps_plan=False)

    @property
    def is_prepared(self) -> bool:
        if not self.keeps_plan:
            return False
        block = load_blocks(self.app).get(self.name)
        return block is not None and block.is_prepared

    @property
    def text(self) -> str:
        return compose_statement(self.app, self.name)

    def fetch_rows(self, **params: object) -> list[Row]:
        return fetch_result_sets(*self.before, self, **params)[-1]

    def fetch_row(self, **params: object) -> Row | None:
        """Return the only row, or None."""
        return next(iter(self.fetch_rows(**params)), None)

    def fetch_only_row(self, **params: object) -> Row:
        """Return the row of a statement that always has exactly one."""
        [row] = self.fetch_rows(**params)
        return row

    def sweep_rows(
        self,
        then: Callable[[list[Row]], object] = len,
        left_out: list[RowKey] | None = None,
        batch: int | None = None,
        **params: object,
    ) -> list[Row]:
        """Run a sweep and return its rows. If some row makes it fail, leave this row out and change all others.

        `then` gets the rows in the same transaction. For a statement NAME there is a statement NAME_due that only lists
        the ids that would change. Both take a parameter `only` (ids, or null for all). The ids of failed rows are added
        to `left_out`, so that the next batch of the same sweep skips them.
        """
        bad: list[RowKey] = [] if left_out is None else left_out
        if batch is not None:
            params["batch"] = batch

        def run_statement(only: Sequence[RowKey] | None) -> list[Row]:
            with prefer_key_lookups():
                rows = self.fetch_rows(only=None if only is None else list(only), **params)
                then(rows)
            return rows

        def leave_out(id: RowKey, error: DatabaseError) -> list[Row]:
            transactions.record_left_out(self.name, id, error)
            bad.append(id)
            return []

        if not bad:
            try:
                return transactions.retry_from_start(run_statement)(None)
            except DatabaseError as error:
                if transactions.is_transient_error(error):
                    raise
                log.exception("A sweep failed; trying again without the failing rows", sweep=self.name)
        room = {} if batch is None else {"batch": batch + len(bad)}
        with prefer_key_lookups():
            due = Statement(self.app, f"{self.name}_due", DueRow).fetch_rows(only=None, **{**params, **room})
        ids = [row.id for row in due if row.id not in set(bad)][:batch]
        return transactions.run_in_halves(transactions.retry_from_start(run_statement), ids, leave_out) if ids else []


class IdRow(NamedTuple):
    """Row with only an id."""

    id: UUID


class DueRow(NamedTuple):
    """Row that a sweeping statement would change."""

    id: RowKey


@overload
def fetch_result_sets(
    first: Statement[Row], second: Statement[Other], /, **params: object
) -> tuple[list[Row], list[Other]]: ...
@overload
def fetch_result_sets(*statements: Statement[Any], **params: object) -> tuple[list[Any], ...]: ...
@transactions.retry_from_start
def fetch_result_sets(*statements: Statement[Any], **params: object) -> tuple[list[Any], ...]:
    """Run the statements in one round trip and return the rows of each. See `Statement.after`.

    If one of them is a prepared statement, all of them are prepared.
    """
    if any(statement.is_prepared for statement in statements) and prepared.are_on():
        keys = [(statement.app, statement.name) for statement in statements]
        with prepared.preparing_again(), connection.cursor() as cursor:
            commands, skipped = prepared.list_commands(keys)
            cursor.execute(";\n".join(commands), params)
            cursor.set_result(skipped)
            return read_result_sets(cursor, statements)
    with connection.cursor() as cursor:
        cursor.execute(";\n".join(statement.text for statement in statements), params)
        return read_result_sets(cursor, statements)


def read_result_sets(cursor: CursorWrapper, statements: Sequence[Statement[Any]]) -> tuple[list[Any], ...]:
    """Return the rows of each statement from a cursor that has run all of them."""
    result_sets = []
    for number, statement in enumerate(statements):
        if number:
            cursor.nextset()
        result_sets.append(read_rows(statement.row, cursor))
    return tuple(result_sets)


def read_rows(row: type[Row], cursor: CursorWrapper) -> list[Row]:
    """Return the results of a cursor as rows of this class."""
    fields: tuple[str, ...] = row._fields  # type: ignore[attr-defined]
    result = cursor.pgresult  # the cursor's description would create an object for each column
    names = tuple([result.fname(place).decode() for place in range(result.nfields)])
    rows = cursor.fetchall()
    if names != fields:
        # During an upgrade `s.*` may return new columns that this code does not know yet.
        places = [names.index(field) for field in fields]
        rows = [[values[place] for place in places] for values in rows]
    return [tuple.__new__(row, values) for values in rows]


class Statements:
    """Statements of one app as attributes. A subclass declares them with their row classes (sql_rows.py)."""

    def __init__(self, app: str) -> None:
        self.app = app
        self.rows = {name: get_args(hint)[0] for name, hint in get_type_hints(type(self)).items()}
        for name, row in self.rows.items():
            setattr(self, name, Statement(app, name, row))

    def check(self) -> None:
        """Check the books, and that the declared rows match the heads. Raise BookError."""
        check_books(self.app)
        blocks = load_blocks(self.app).values()
        heads = {block.name: tuple(block.returns) for block in blocks if block.kind == "statement"}
        if {name: row._fields for name, row in self.rows.items()} != heads:
            raise BookError(
                f"{self.app}/sql/statements.py does not match the heads. Run python -m controlplane.core.sql_rows"
            )

    def build_expression(self, name: str, output_field: "Field[Any, Any]", **params: object) -> SqlExpression:
        """Return the rule `name` as an ORM expression."""
        return SqlExpression(compose_statement(self.app, name), output_field, **params)


@contextmanager
def prefer_key_lookups() -> Iterator[None]:
    """Run a transaction in which PostgreSQL prefers to look up rows by key.

    PostgreSQL cannot estimate how many rows each part of a batch statement returns, so it often reads whole tables. A
    batch has few rows, so lookups by key are faster.
    """
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("set local enable_hashjoin = off; set local enable_mergejoin = off; set local jit = off")
        yield
