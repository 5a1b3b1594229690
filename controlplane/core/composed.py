"""ORM queries that are compiled once and run often. Compiling such a query costs more than running it."""

from copy import copy
from typing import Any, Generic, NamedTuple, TypeVar

from django.core.exceptions import EmptyResultSet
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Expression, Field, Model, QuerySet
from django.db.models.sql import Query
from django.db.models.sql.compiler import SQLCompiler

from controlplane.core.database import connection

Row = TypeVar("Row", bound=Model)


class Composed(NamedTuple):
    """SQL text of a query with its parameters. Neither depends on the present time."""

    sql: str
    params: tuple[Any, ...]

    def fetch_rows(self) -> list[tuple[Any, ...]]:
        with connection.cursor() as cursor:
            cursor.execute(self.sql, self.params)
            return cursor.fetchall()

    def fetch_dicts(self) -> list[dict[str, Any]]:
        """Return the rows as dicts by column name."""
        with connection.cursor() as cursor:
            cursor.execute(self.sql, self.params)
            names = [column.name for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def compose_query(rows: "QuerySet[Any, Any]") -> Composed:
    return Composed(*rows.query.get_compiler(rows.db).as_sql())


class Given(Expression):
    """Placeholder in a composed query. A value or another query takes its place when the query runs."""

    def __init__(self, name: str, output_field: "Field[Any, Any] | None" = None) -> None:
        super().__init__(output_field=output_field)
        self.name = name

    def as_sql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> tuple[str, list[Any]]:  # type: ignore[override]
        return "%s", [self]


class ComposedRows(Generic[Row]):
    """Query with `Given` placeholders that is compiled once. Its rows are model instances, as with any QuerySet."""

    def __init__(self, rows: QuerySet[Row]) -> None:
        self.rows, self.compiler = rows, rows.query.get_compiler(rows.db)
        self.sql, self.params = self.compiler.as_sql()

    def fetch(self, **given: object) -> list[Row]:
        """Return the rows. `given` has a value or query for each placeholder.

        If such a query is empty, return no rows.
        """
        try:
            filled = self.fill_in(given)
        except EmptyResultSet:
            return []
        compiler = copy(self.compiler)
        vars(compiler).update(connection=connections[self.rows.db], as_sql=lambda *_, **__: filled)
        rows = self.rows.all()
        rows.query = rows.query.chain(ComposedSelect)
        vars(rows.query)["composed"] = compiler
        return list(rows)

    def fill_in(self, given: dict[str, object]) -> tuple[str, tuple[Any, ...]]:
        values = {
            name: compose_query(value) if isinstance(value, QuerySet) else Composed("%s", (value,))
            for name, value in given.items()
        }
        filled = [values[param.name] if isinstance(param, Given) else Composed("%s", (param,)) for param in self.params]
        texts = self.sql.split("%s")
        sql = "".join(part for pair in zip(texts, [*(one.sql for one in filled), ""], strict=True) for part in pair)
        return sql, tuple(param for one in filled for param in one.params)


class ComposedSelect(Query):
    """Query whose SQL text is already compiled."""

    composed: Any

    def get_compiler(self, *_: object, **__: object) -> Any:
        return self.composed
