"""A page of a list that is filtered: what was found, how far it looked, and where it goes on."""

from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID

from django.db.models import QuerySet

from controlplane.console.selectors.filters import Filter, SearchFilter
from jobs import scan_window


class ListPage(NamedTuple):
    rows: list[Any]
    older: str | None
    """The link that goes on."""
    searched: str
    """How much was looked through, where that was not everything; in words."""


def build_list_page(
    search: SearchFilter,
    rows: QuerySet[Any],
    page: Callable[[QuerySet[Any], UUID | None, int], QuerySet[Any]],
    before: UUID | None,
    limit: int,
    noun: str = "job",
) -> ListPage:
    """The next `limit` of these rows that match, latest first."""
    is_searched = search.chosen_values.keys() - {"state"}
    matching, floor = search.match_in_scan_window(rows, before) if is_searched else (search.filter_rows(rows), None)
    matches = list(page(matching, before, limit + 1))
    if len(matches) > limit:
        return ListPage(matches[:limit], link_to_older(search, matches[limit - 1].pk), "")
    if floor is None:
        return ListPage(matches, None, "")
    if missing := limit - len(matches):
        matches += page(search.match_by_key_or_id(rows), floor, missing)
    state = f"{search.chosen_values['state']} " if "state" in search.chosen_values else ""
    number = f"{scan_window.SCAN_LIMIT:,} more" if before else f"the newest {scan_window.SCAN_LIMIT:,}"
    return ListPage(matches, link_to_older(search, floor), f"{number} {state}{noun}s")


def link_to_older(search: Filter, last: object) -> str:
    return f"?{search.query}{'&' if search.query else ''}before={last}"


def format_at_least(count: int, floor: object) -> str:
    """A number, of which no more is known if there is a floor that was counted down to."""
    return f"{count:,}" if floor is None else f"≥ {count:,}"
