"""Queries of the ORM that pages ask all the time, put together once: to do that costs more than to ask them."""

from typing import Any, NamedTuple

from django.db.models import QuerySet

from controlplane.core.database import connection


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
