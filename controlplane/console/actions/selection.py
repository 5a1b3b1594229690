"""Selection of objects for an action, from the URL of its page."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse

from controlplane.console.page import reached_namespaces
from controlplane.console.selectors.filters.base import Filter
from controlplane.core.ids import parse_uuid
from liveness.selectors.namespaces import rows_within


@dataclass(frozen=True)
class Target:
    """Kind of object that operators can act on."""

    noun: str
    """Key of `VIEWS`. The pages need the view permission of this key."""
    rows: Callable[[], QuerySet[Any]]
    filter: type[Filter]
    decisive_columns: tuple[str, ...]
    """Columns that the `guard` of an action reads."""
    every: str
    one: str
    describe_row: Callable[[Any], str]
    consequences: Callable[[str, list[Any]], list[Any]] = field(default=lambda name, rows: [])
    """Function that lists the jobs of the picked objects that would move.

    They are shown only to users who may view jobs.
    """

    def format_count(self, count: int) -> str:
        return f"{count:,} {self.noun}{'' if count == 1 else 's'}"


@dataclass(frozen=True)
class Selection:
    """Objects named in the URL."""

    target: Target
    picks: list[UUID]
    filter: Filter | None
    namespaces: frozenset[str] | None
    """Namespaces that the operator may view. None means all."""

    @classmethod
    def from_request(cls, target: Target, request: HttpRequest) -> "Selection":
        if request.GET.get("all"):
            return cls(target, [], target.filter(request.GET), reached_namespaces(request))
        ids = (parse_uuid(text) for text in request.GET.getlist("pick"))
        picks = [pick for pick in ids if pick]
        if (reached := reached_namespaces(request)) is not None:
            rows = target.rows().model._default_manager.filter(pk__in=picks)
            seen = set(rows_within(reached, rows).values_list("pk", flat=True))
            picks = [pick for pick in picks if pick in seen]
        return cls(target, picks, None, reached)

    @property
    def rows(self) -> QuerySet[Any]:
        rows = rows_within(self.namespaces, self.target.rows())
        return self.filter.filter_rows(rows) if self.filter else rows.filter(pk__in=self.picks)

    @property
    def back(self) -> str:
        if len(self.picks) == 1:
            return reverse(self.target.one, args=self.picks)
        query = self.filter.query if self.filter else ""
        return reverse(self.target.every) + (f"?{query}" if query else "")
