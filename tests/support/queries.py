"""Queries that the database received."""

from typing import Any

from django.test.utils import CaptureQueriesContext


class CapturedQueries(CaptureQueriesContext):
    """Captured queries without PREPARE statements, because these depend on the tests that ran before."""

    @property
    def captured_queries(self) -> list[dict[str, Any]]:
        return [query for query in super().captured_queries if not query["sql"].startswith("prepare ")]
