"""Lists of the API: a page at a time, and no longer than an answer may be."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar
from uuid import UUID

from django.db.models import F, Func, IntegerField, QuerySet
from rest_framework import serializers

from controlplane.core.answers import represent
from controlplane.core.json_bodies import JSONRenderer
from controlplane.core.rest import (
    IdField,
    StrictSerializer,
    TextField,
    shared_serializer,
)

ANSWER_LIMIT = 8 * 1024 * 1024
"""Bytes of the items of a list; what would go beyond is the next page's."""


def paged(answer: type[serializers.Serializer], page: Mapping[str, Any]) -> dict[str, Any]:
    """A page as `answer` writes it, no longer than ANSWER_LIMIT unless one item alone is."""
    rows: list[Any] = page["items"]
    item = type(shared_serializer(answer).fields["items"].child)
    items = within_limit(represent(item, row) for row in rows)
    return {"items": items, "next": str(rows[len(items) - 1].pk) if len(items) < len(rows) else page["next"]}


def within_limit(items: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The first of the items, as many as an answer may have; one at least."""
    kept: list[dict[str, Any]] = []
    size = 0
    for item in items:
        size += len(JSONRenderer().render(item))
        if kept and size > ANSWER_LIMIT:
            break
        kept.append(item)
    return kept


def ids_within_limit(rows: QuerySet[Any], heavy: Sequence[str]) -> list[Any]:
    """The ids of the first rows, as many as an answer may have by their heavy columns, and of one more."""
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
    """How many items a page has."""

    def __init__(self) -> None:
        super().__init__(default=100, min_value=1, max_value=500)


class PageFilter(StrictSerializer):
    """Which page of a list, latest first. Ids sort by age, so a page stays where it is while more comes."""

    cursor = IdField(required=False, help_text="`next` of the previous page.")
    limit = PageSizeField()
    namespace = TextField(required=False, max_length=90, help_text="One of those that the caller reaches.")

    heavy: ClassVar[Sequence[str]] = ()
    """Columns that may hold so much that rows are weighed before they are read."""

    def match_rows(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Of these rows all that are asked for, on whichever page."""
        return rows

    def page(self, rows: QuerySet[Any], floor: UUID | None = None) -> dict[str, Any]:
        """The page of these rows, with the cursor of the next; null: there is none.

        Where there is a floor it was looked no further than to this id: the next page goes on there.
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
