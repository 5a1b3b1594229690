"""What is large is left out of lists, and of answers that hold much."""

from collections.abc import Iterable, Sequence
from typing import Any

from django.db.models import BooleanField, F, Func, JSONField, QuerySet

from jobs.models import WorkerJob

LARGE = 16 * 1024
"""Bytes, as JSON, beyond which a list leaves a field out."""
MUCH = 4 * 1024 * 1024
"""Bytes, as JSON, of what one answer holds of the contents of attempts, or of steps; the rest is left out."""
INSTEAD = {"action": "jsonb_build_object('type', {0} -> 'type')", "error": "jsonb_build_object('code', {0} -> 'code')"}

IS_LARGE = f"(pg_column_size({{0}}) > {LARGE} or octet_length({{0}}::text) > {LARGE})"  # the first unpacks nothing

LARGE_FIELDS = ("action", "payload", "output", "error", "checkpoint")


def content(field: str, is_left_out: str) -> dict[str, Func]:
    """A field of JSON as an answer has it, `FIELD_shown`, and whether it is left out, `FIELD_left_out`."""
    column, left_out = "%(expressions)s", f"({{0}} is not null and {is_left_out})"
    shown = f"case when {left_out} then {INSTEAD.get(field, 'null')} else {{0}} end"
    return {
        f"{field}_shown": Func(F(field), template=shown.format(column), output_field=JSONField()),
        f"{field}_left_out": Func(F(field), template=left_out.format(column), output_field=BooleanField()),
    }


def without_large(jobs: QuerySet[WorkerJob]) -> QuerySet[WorkerJob]:
    """Jobs without what is large of them, as lists have them; for `jobs_with_flags()`, which says what is left out."""
    shown: dict[str, Any] = {}
    for field in LARGE_FIELDS:
        shown |= content(field, IS_LARGE)
    return jobs.defer(*LARGE_FIELDS).annotate(**shown)


def put_in_place(rows: Iterable[Any], fields: Sequence[str]) -> None:
    """What was asked as `content()` stands where the field would, and `left_out` names what is not there."""
    for row in rows:
        asked = [field for field in fields if f"{field}_shown" in vars(row)]
        row.left_out = [field for field in asked if getattr(row, f"{field}_left_out")]
        for field in asked:
            setattr(row, field, getattr(row, f"{field}_shown"))
