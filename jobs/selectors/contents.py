"""Leave large JSON fields out of lists and large responses."""

from collections.abc import Iterable, Sequence
from typing import Any

from django.db.models import BooleanField, F, Func, JSONField, QuerySet

from jobs.models import WorkerJob

LARGE = 16 * 1024
"""Bytes of JSON above which a list leaves a field out."""
MUCH = 4 * 1024 * 1024
"""Largest size in bytes of the contents of attempts or steps in a response. The rest is left out."""
INSTEAD = {"action": "jsonb_build_object('type', {0} -> 'type')", "error": "jsonb_build_object('code', {0} -> 'code')"}

IS_LARGE = f"(pg_column_size({{0}}) > {LARGE} or octet_length({{0}}::text) > {LARGE})"  # the first decompresses nothing

LARGE_FIELDS = ("action", "payload", "output", "error", "checkpoint")


def content(field: str, is_left_out: str) -> dict[str, Func]:
    """Return two columns for a JSON field.

    `FIELD_shown` is its value in the response. `FIELD_left_out` is true if the value is left out.
    """
    column, left_out = "%(expressions)s", f"({{0}} is not null and {is_left_out})"
    shown = f"case when {left_out} then {INSTEAD.get(field, 'null')} else {{0}} end"
    return {
        f"{field}_shown": Func(F(field), template=shown.format(column), output_field=JSONField()),
        f"{field}_left_out": Func(F(field), template=left_out.format(column), output_field=BooleanField()),
    }


def without_large(jobs: QuerySet[WorkerJob]) -> QuerySet[WorkerJob]:
    """Return jobs without large fields, for lists. Pass them to `jobs_with_flags()`, which sets `left_out`."""
    shown: dict[str, Any] = {}
    for field in LARGE_FIELDS:
        shown |= content(field, IS_LARGE)
    return jobs.defer(*LARGE_FIELDS).annotate(**shown)


def put_in_place(rows: Iterable[Any], fields: Sequence[str]) -> None:
    """Set each field to its value from `content()`, and `left_out` to the names of the missing fields."""
    for row in rows:
        asked = [field for field in fields if f"{field}_shown" in vars(row)]
        row.left_out = [field for field in asked if getattr(row, f"{field}_left_out")]
        for field in asked:
            setattr(row, field, getattr(row, f"{field}_shown"))
