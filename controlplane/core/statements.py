"""Runs the statements of the books (sql_book.py), and makes rules expressions of the ORM."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Generic, NamedTuple, TypeVar, get_args, get_type_hints, overload
from uuid import UUID

import structlog
from django.db import DatabaseError
from django.db.models import Field, Func

from controlplane.core import transactions
from controlplane.core.database import connection, transaction
from controlplane.core.sql_book import BookError, check_books, compose_statement, load_blocks

log = structlog.get_logger()

RowKey = UUID | int | str
"""By what a sweep names its rows."""

Row = TypeVar("Row", bound=tuple[Any, ...])
Other = TypeVar("Other", bound=tuple[Any, ...])

PIECE = re.compile(r"\bs\.(\w+)|%\((\w+)\)s")


class SqlExpression(Func):
    """SQL over a row `s` as an expression of the ORM: `s.name` is the field, or the annotation, of whatever is asked.

    It costs Python a tenth of what the same as Case, When and Q does, which counts on a page that is read each second.
    """

    def __init__(self, text: str, output_field: "Field[Any, Any]", **params: Any) -> None:
        self.pieces, self.columns = split_expression(text)
        super().__init__(*self.columns, output_field=output_field)
        self.params = params

    def as_sql(self, compiler: Any, connection: Any, **_: Any) -> tuple[str, list[Any]]:  # type: ignore[override]
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
    """Each stretch of text with the column of `s` or the parameter that follows it, and the columns, each once."""
    parts = [part or "" for part in (*PIECE.split(text), None, None)]
    pieces = list(zip(parts[::3], parts[1::3], parts[2::3], strict=True))
    return pieces, list(dict.fromkeys(column for _, column, _ in pieces if column))


@dataclass(frozen=True)
class Statement(Generic[Row]):
    """A statement of a book, with the class of its rows: `sql.claim_jobs.fetch_rows(…)`."""

    app: str
    name: str
    row: type[Row]
    before: "tuple[Statement[Any], ...]" = ()
    """Statements that go first, in the same round trip."""

    def after(self, *others: "Statement[Any]") -> "Statement[Row]":
        """This one with others in front of it, in one round trip.

        They commit together, but each sees what was committed before *it* began, so a lock
        that the first takes protects what the second reads.
        """
        return replace(self, before=others)

    @property
    def text(self) -> str:
        return compose_statement(self.app, self.name)

    def fetch_rows(self, **params: Any) -> list[Row]:
        return fetch_result_sets(*self.before, self, **params)[-1]

    def fetch_row(self, **params: Any) -> Row | None:
        """The only row, or None."""
        return next(iter(self.fetch_rows(**params)), None)

    def fetch_only_row(self, **params: Any) -> Row:
        """The row of a statement that always has one."""
        [row] = self.fetch_rows(**params)
        return row

    def sweep_rows(
        self, then: Callable[[list[Row]], object] = len, left_out: list[RowKey] | None = None, **params: Any
    ) -> list[Row]:
        """The rows of a sweeping statement. When one of its rows makes it fail, those that can be written without it.

        What follows from the rows, `then` does in the same transaction. Beside NAME there is NAME_due, which
        only lists the ids it is about to touch, and both obey `only` (ids, or null for all). The ids of those that
        could not be written are added to `left_out`; of a sweep in batches the next one passes them by.
        """
        bad: list[RowKey] = [] if left_out is None else left_out

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
                log.exception("A sweep failed; trying without what cannot be written", sweep=self.name)
        room = {"batch": params["batch"] + len(bad)} if "batch" in params else {}
        with prefer_key_lookups():
            due = Statement(self.app, f"{self.name}_due", DueRow).fetch_rows(only=None, **{**params, **room})
        ids = [row.id for row in due if row.id not in set(bad)][: params.get("batch")]
        return transactions.run_in_halves(transactions.retry_from_start(run_statement), ids, leave_out) if ids else []


class IdRow(NamedTuple):
    """What many statements return."""

    id: UUID


class DueRow(NamedTuple):
    """What a sweeping statement is about to touch."""

    id: RowKey


@overload
def fetch_result_sets(
    first: Statement[Row], second: Statement[Other], /, **params: Any
) -> tuple[list[Row], list[Other]]: ...
@overload
def fetch_result_sets(*statements: Statement[Any], **params: Any) -> tuple[list[Any], ...]: ...
@transactions.retry_from_start
def fetch_result_sets(*statements: Statement[Any], **params: Any) -> tuple[list[Any], ...]:
    """Run the statements in one round trip; the rows of each. See `Statement.after`."""
    with connection.cursor() as cursor:
        cursor.execute(";\n".join(statement.text for statement in statements), params)
        return read_result_sets(cursor, statements)


def read_result_sets(cursor: Any, statements: Sequence[Statement[Any]]) -> tuple[list[Any], ...]:
    """The rows of each of these, which a cursor has one after the other."""
    result_sets = []
    for number, statement in enumerate(statements):
        if number:
            cursor.nextset()
        result_sets.append(read_rows(statement.row, cursor))
    return tuple(result_sets)


def read_rows(row: type[Row], cursor: Any) -> list[Row]:
    """What a cursor has, as these rows."""
    fields: tuple[str, ...] = row._fields  # type: ignore[attr-defined]
    result = cursor.pgresult  # its description would make an object of each column
    names = tuple([result.fname(place).decode() for place in range(result.nfields)])
    rows = cursor.fetchall()
    if names != fields:
        # `s.*` while an upgrade goes on: the table has columns already that this code does not know.
        places = [names.index(field) for field in fields]
        rows = [[values[place] for place in places] for values in rows]
    return [tuple.__new__(row, values) for values in rows]


class Statements:
    """The statements of one app, each an attribute; a subclass declares them, with their rows (sql_rows.py)."""

    def __init__(self, app: str) -> None:
        check_books(app)
        self.app = app
        declared = {name: get_args(hint)[0] for name, hint in get_type_hints(type(self)).items()}
        heads = {block.name: tuple(block.returns) for block in load_blocks(app).values() if block.kind == "statement"}
        if {name: row._fields for name, row in declared.items()} != heads:
            raise BookError(
                f"{app}/sql/statements.py is not as the heads are: run python -m controlplane.core.sql_rows"
            )
        for name, row in declared.items():
            setattr(self, name, Statement(app, name, row))

    def build_expression(self, name: str, output_field: "Field[Any, Any]", **params: Any) -> SqlExpression:
        """The piece `name` as an expression of the ORM."""
        return SqlExpression(compose_statement(self.app, name), output_field, **params)


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
