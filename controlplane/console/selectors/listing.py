"""Page of a filtered and sorted list: its rows, the range that was searched, and the link to the next page.

The index sorts by age. For any other order, only the next `scan_window.SCAN_LIMIT` rows are sorted, and the page shows
this.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple
from urllib.parse import urlencode
from uuid import UUID

from django.db.models import QuerySet
from django.http import HttpRequest

from controlplane.console.selectors.filters.base import INDEXED, ORDERS, Filter, SearchFilter
from controlplane.core.ids import parse_uuid
from jobs import scan_window

OLDEST = "oldest"
Page = Callable[[QuerySet[Any], UUID | None, int], Iterable[Any]]
"""Function that returns a page of rows in the requested order. It gets the rows, the id before the page, and the
page size."""


class ListPage(NamedTuple):
    rows: list[Any]
    older: str | None
    """Link to the next page, or None."""
    searched: str
    """Description of the rows that were searched. Empty if all rows were searched."""
    before: UUID | None
    """Id after which this page begins, or None for the first page."""
    is_sorted: bool = False
    """True if only the searched rows are sorted."""


def build_list_page(
    request: HttpRequest, search: SearchFilter, rows: QuerySet[Any], page: Page, limit: int, noun: str = "job"
) -> ListPage:
    """Return the next `limit` matching rows in the requested order."""
    before = parse_uuid(request.GET.get("before"))
    if search.order not in ("", OLDEST):
        return build_sorted_page(request, search, rows, page, before, limit, noun)
    oldest_first = search.order == OLDEST
    is_searched = search.chosen_values.keys() - INDEXED
    matching, floor = (
        search.match_in_scan_window(rows, before, oldest_first=oldest_first)
        if is_searched
        else (search.filter_rows(rows), None)
    )
    matches = list(page(matching, before, limit + 1))
    if len(matches) > limit:
        return ListPage(matches[:limit], link_to_older(search, matches[limit - 1].pk), "", before)
    if floor is None:
        return ListPage(matches, None, "", before)
    if missing := limit - len(matches):
        matches += page(search.match_by_key_or_id(rows), floor, missing)
    searched = describe_window(search, before, noun, "oldest" if oldest_first else "newest")
    return ListPage(matches, link_to_older(search, floor), searched, before)


def build_sorted_page(
    request: HttpRequest,
    search: SearchFilter,
    rows: QuerySet[Any],
    page: Page,
    before: UUID | None,
    limit: int,
    noun: str,
) -> ListPage:
    """Return the next `limit` matches of one scan window, after the first `skip`.

    After the last match of a window comes the first page of the next window.
    """
    text = request.GET.get("skip", "")
    skip = int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0
    matching, floor = search.match_in_scan_window(rows, before)
    matches = list(page(matching, None, skip + limit + 1))[skip:]
    searched = describe_window(search, before, noun, "newest") if floor else ""
    if len(matches) > limit:
        # Fix the start of the window, so that new rows do not move it.
        newest = before or UUID(int=rows.order_by("-pk").values_list("pk", flat=True)[0].int + 1)
        return ListPage(
            matches[:limit], link_to_older(search, newest, skip=skip + limit), searched, before, is_sorted=True
        )
    onward = link_to_older(search, floor) if floor else None
    return ListPage(matches, onward, searched, before, is_sorted=True)


def describe_window(search: Filter, before: UUID | None, noun: str, ends: str) -> str:
    state = f"{search.chosen_values['state']} " if "state" in search.chosen_values else ""
    number = f"{scan_window.SCAN_LIMIT:,} more" if before else f"the {ends} {scan_window.SCAN_LIMIT:,}"
    return f"{number} {state}{noun}s"


def present_list_page(listing: ListPage, search: SearchFilter) -> dict[str, Any]:
    """Return the values that the table and the pager of a sorted list show beside the rows."""
    return {
        "before": listing.before,
        "older": listing.older,
        "searched": listing.searched,
        "order": search.order,
        "is_sorted": listing.is_sorted,
        "orders": {order or "newest": link_to_order(search, order) for order in ("", *ORDERS)},
    }


def link_to_order(search: SearchFilter, order: str) -> str:
    """Return a link to the first page of the list in another order."""
    others = {name: text for name, text in search.texts.items() if name != "sort"}
    return f"?{urlencode({**others, **({'sort': order} if order else {})})}"


def link_to_older(search: Filter, last: object, **more: object) -> str:
    return f"?{search.query}{'&' if search.query else ''}{urlencode({'before': last, **more})}"


def format_at_least(count: int, floor: object) -> str:
    """Return the count, marked with ≥ if the rows below `floor` were not counted."""
    return f"{count:,}" if floor is None else f"≥ {count:,}"
