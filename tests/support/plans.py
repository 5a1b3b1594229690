"""Plans of PostgreSQL for executed statements."""

from collections.abc import Iterator
from typing import Any

from django.db import connection, transaction

from tests.support.queries import CapturedQueries


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for part in plan.get("Plans", []):
        yield from nodes(part)


def executed(queries: CapturedQueries, name: str) -> str:
    """Return the last EXECUTE of the statement `name` among the queries."""
    texts = [text for query in queries for text in query["sql"].split(";\n")]
    return [text for text in texts if text.startswith(f"execute controlplane_{name}_")][-1]


def plan_of_execution(execution: str) -> list[dict[str, Any]]:
    """Run an EXECUTE and return the steps of its generic plan."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("set local plan_cache_mode = force_generic_plan; set local enable_seqscan = off")
        cursor.execute(f"explain (analyze, format json) {execution}")
        [[[plan]]] = cursor.fetchall()
    return list(nodes(plan["Plan"]))
