"""What the database was asked."""

from typing import Any

from django.test.utils import CaptureQueriesContext


class CapturedQueries(CaptureQueriesContext):
    """Without what a connection prepares the first time: whether that is now depends on the tests before."""

    @property
    def captured_queries(self) -> list[dict[str, Any]]:
        return [query for query in super().captured_queries if not query["sql"].startswith("prepare ")]
