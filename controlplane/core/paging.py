"""Pages of the API's lists, within a limit on the size of a response."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar
from uuid import UUID

from django.db.models import F, Func, IntegerField, QuerySet
from rest_framework import serializers

from controlplane.core.answers import represent
from controlplane.core.json_bodies import render_json
from controlplane.core.rest import (
    IdField,
    StrictSerializer,
    TextField,
    shared_serializer,
)

ANSWER_LIMIT = 8 * 1024 * 1024
"""Largest size in bytes of the items on a page. Items beyond it move to the next page."""


def paged(answer: type[serializers.Serializer], page: Mapping[str, Any]) -> dict[str, Any]:
    """Return a page in the form of `answer`. Its items have at most ANSWER_LIMIT bytes, but a page has at least one."""
    rows: list[Any] = page["items"]
    item = type(shared_serializer(answer).fields["items"].child)
    items = within_limit(represent(item, row) for row in rows)
    return {"items": items, "next": str(rows[len(items) - 1].pk) if len(items) < len(rows) else page["next"]}


def within_limit(items: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the first items up to the size limit, but at least one."""
    kept: list[dict[str, Any]] = []
    size = 0
    for item in items:
        size += len(render_json(item))
        if kept and size > ANSWER_LIMIT:
            break
        kept.append(item)
    return kept


def ids_within_limit(rows: QuerySet[Any], heavy: Sequence[str]) -> list[Any]:
    """Return the ids of the first rows whose heavy columns fit into a response, and the id of the next row."""
    weight = "coalesce(octet_length(%(expressions)s::text), 0)"
    weights = [Func(F(column), template=weight, output_field=IntegerField()) for column in heavy]
    ids, size = [], 0
    for id, *sizes in rows.values_list("pk", *weights):
        ids.append(id)
        if size > ANSWER_LIMIT:
            break
        size += sum(sizes)
    return ids


class PageSizeField(serializers.IntegerField):
    """Number of items on a page."""

    def __init__(self) -> None:
        super().__init__(default=100, min_value=1, max_value=500)


class PageFilter(StrictSerializer):
    """Filter that selects a page of a list, latest first. Ids sort by age, so new rows do not move a page."""

    cursor = IdField(required=False, help_text="`next` of the previous page.")
    limit = PageSizeField()
    namespace = TextField(
        required=False, max_length=90, help_text="Only objects of this namespace. The caller must have access to it."
    )

    heavy: ClassVar[Sequence[str]] = ()
    """Columns that may be large. The sizes of the rows are measured before the rows are read."""

    def match_rows(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Return the rows that match the filter, of all pages."""
        return rows

    def page(self, rows: QuerySet[Any], floor: UUID | None = None) -> dict[str, Any]:
        """Return a page of these rows with the cursor of the next page. The cursor is null on the last page.

        If the search was limited, `floor` is the id down to which rows were searched. The next page starts there.
        """
        filters = self.validated_data
        if "cursor" in filters:
            rows = rows.filter(pk__lt=filters["cursor"])
        fitting = rows.order_by("-pk")[: filters["limit"] + 1]
        if self.heavy:
            fitting = rows.filter(pk__in=ids_within_limit(fitting, self.heavy)).order_by("-pk")
        page_rows = list(fitting)
        items = page_rows[: filters["limit"]]
        last = items[-1].pk if len(page_rows) > len(items) else floor
        return {"items": items, "next": str(last) if last else None}
