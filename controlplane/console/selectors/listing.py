"""A page of a list that is filtered: what was found, how far it looked, and where it goes on."""

from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID

from django.db.models import QuerySet

from controlplane.console.selectors.filters import Filter, Searched
from jobs import reach


class Listed(NamedTuple):
    rows: list[Any]
    older: str | None
    """The link that goes on."""
    searched: str
    """How much was looked through, where that was not everything; in words."""


def listed(
    chosen: Searched,
    rows: QuerySet[Any],
    page: Callable[[QuerySet[Any], UUID | None, int], QuerySet[Any]],
    before: UUID | None,
    limit: int,
    noun: str = "job",
) -> Listed:
    """The next `limit` of these rows that match, latest first."""
    is_searched = chosen.chosen.keys() - {"state"}
    matching, floor = chosen.within_reach(rows, before) if is_searched else (chosen.apply(rows), None)
    found = list(page(matching, before, limit + 1))
    if len(found) > limit:
        return Listed(found[:limit], before_link(chosen, found[limit - 1].pk), "")
    if floor is None:
        return Listed(found, None, "")
    if missing := limit - len(found):
        found += page(chosen.named(rows), floor, missing)
    state = f"{chosen.chosen['state']} " if "state" in chosen.chosen else ""
    number = f"{reach.LOOKED:,} more" if before else f"the newest {reach.LOOKED:,}"
    return Listed(found, before_link(chosen, floor), f"{number} {state}{noun}s")


def before_link(chosen: Filter, last: object) -> str:
    return f"?{chosen.query}{'&' if chosen.query else ''}before={last}"


def at_least(count: int, floor: object) -> str:
    """A number, of which no more is known if there is a floor that was counted down to."""
    return f"{count:,}" if floor is None else f"≥ {count:,}"
