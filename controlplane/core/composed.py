"""Queries of the ORM that pages ask all the time, put together once: to do that costs more than to ask them."""

from copy import copy
from typing import Any, Generic, NamedTuple, TypeVar

from django.core.exceptions import EmptyResultSet
from django.db import connections
from django.db.models import Expression, Field, Model, QuerySet
from django.db.models.sql import Query

from controlplane.core.database import connection

Row = TypeVar("Row", bound=Model)


class Composed(NamedTuple):
    """A query as PostgreSQL gets it, of which no part depends on the moment."""

    sql: str
    params: tuple[Any, ...]

    def fetch_rows(self) -> list[tuple[Any, ...]]:
        with connection.cursor() as cursor:
            cursor.execute(self.sql, self.params)
            return cursor.fetchall()

    def fetch_dicts(self) -> list[dict[str, Any]]:
        """The rows by the names of their columns."""
        with connection.cursor() as cursor:
            cursor.execute(self.sql, self.params)
            names = [column.name for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def compose_query(rows: "QuerySet[Any, Any]") -> Composed:
    return Composed(*rows.query.get_compiler(rows.db).as_sql())


class Given(Expression):
    """A place in a composed query for what is known only when it is asked: a value, or another query."""

    def __init__(self, name: str, output_field: "Field[Any, Any] | None" = None) -> None:
        super().__init__(output_field=output_field)
        self.name = name

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, list[Any]]:  # type: ignore[override]
        return "%s", [self]


class ComposedRows(Generic[Row]):
    """A query with places that are `Given`, put together once; its rows are as those of any other."""

    def __init__(self, rows: QuerySet[Row]) -> None:
        self.rows, self.compiler = rows, rows.query.get_compiler(rows.db)
        self.sql, self.params = self.compiler.as_sql()

    def fetch(self, **given: Any) -> list[Row]:
        """The rows, with what stands in each place: a value, or a query. None where that query can have none."""
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

    def fill_in(self, given: dict[str, Any]) -> tuple[str, tuple[Any, ...]]:
        values = {
            name: compose_query(value) if isinstance(value, QuerySet) else Composed("%s", (value,))
            for name, value in given.items()
        }
        filled = [values[param.name] if isinstance(param, Given) else Composed("%s", (param,)) for param in self.params]
        texts = self.sql.split("%s")
        sql = "".join(part for pair in zip(texts, [*(one.sql for one in filled), ""], strict=True) for part in pair)
        return sql, tuple(param for one in filled for param in one.params)


class ComposedSelect(Query):
    """A query whose text there is already."""

    composed: Any

    def get_compiler(self, *_: Any, **__: Any) -> Any:
        return self.composed
