"""Base classes of the filters. The values of a filter are in the URL, and it can describe them in words."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django import forms
from django.db.models import QuerySet
from django.http import QueryDict

from controlplane.console.formatting import format_state
from controlplane.console.selectors.filters.rendering import FieldRenderer
from controlplane.console.selectors.periods import MomentField, first_id_at, first_id_within, format_field
from controlplane.core.ids import id_condition
from jobs import scan_window

WITHIN = {
    "15m": ("15 min", 15 * 60), "1h": ("hour", 3600), "24h": ("24 h", 86400), "7d": ("7 days", 7 * 86400),
}  # fmt: skip
"""Periods that end now: the query parameter, its label and its seconds."""

PERIOD = ("within", "since", "until")
FOLDED = ("since", "until", "kind", "code", "error", "flag", "open")
"""Fields that are needed rarely. The page folds them away."""

INDEXED = {"state", *PERIOD}
"""Fields with an index, so that a search by them is fast for any number of rows."""

ORDERS = {"oldest": "oldest", "longest": "longest run", "priority": "highest priority"}

WORDS = {"within": "of the last", "q": "search"}


def choices_of(words: Iterable[str]) -> list[tuple[str, str]]:
    return [("", "any"), *((str(word), str(word)) for word in words)]


def choices_of_states(states: Iterable[str]) -> list[tuple[str, str]]:
    """Return the choices of a filter by state, in words as in the rows."""
    return [("", "any"), *((str(state), format_state(state)) for state in states)]


class Filter(forms.Form):
    """Form whose empty fields do not filter. An invalid value filters nothing, and the form shows an error."""

    use_required_attribute = False
    default_renderer = FieldRenderer

    def __init__(self, data: QueryDict | None = None) -> None:
        super().__init__(data, auto_id="by-%s")
        self.full_clean()

    def filter_rows(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        raise NotImplementedError

    @property
    def chosen_values(self) -> dict[str, Any]:
        return {name: value for name, value in self.cleaned_data.items() if value}

    @property
    def texts(self) -> dict[str, str]:
        """Return the chosen values as query parameters."""
        return {name: format_field(value) for name, value in self.chosen_values.items()}

    @property
    def query(self) -> str:
        """Return the chosen values as a query string."""
        address = QueryDict(mutable=True)
        address.update(self.texts)
        return address.urlencode()

    @property
    def words(self) -> str:
        """Return the chosen values in words."""
        descriptions = [
            name if value is True else f"{WORDS.get(name, name)} {format_field(value)}"
            for name, value in self.chosen_values.items()
        ]
        return ", ".join(descriptions)


class PeriodFilter(Filter):
    """Filter with a time period."""

    within = forms.ChoiceField(
        required=False, choices=[("", "any time"), *((name, f"last {words}") for name, (words, _) in WITHIN.items())]
    )
    since = MomentField(label="From (UTC)")
    until = MomentField(label="Until (UTC)")

    def __init__(self, data: QueryDict | None = None) -> None:
        super().__init__(data)
        self.order_fields(["q", *(name for name in self.fields if name not in ("q", *FOLDED, "sort")), *FOLDED])

    @property
    def has_more(self) -> bool:
        """Return True if one of the fields in `FOLDED` is set."""
        return bool(self.data and any(self.data.get(name) for name in FOLDED))

    @property
    def period(self) -> tuple[timedelta | None, datetime | None, datetime | None]:
        """Return the length of a period that ends now, a start and an end. Each may be None."""
        values = self.chosen_values
        within = timedelta(seconds=WITHIN[values["within"]][1]) if "within" in values else None
        return within, values.get("since"), values.get("until")


class SearchFilter(PeriodFilter):
    """Filter of rows that are sorted by id. A search without an index reads a limited number of rows at a time."""

    @property
    def order(self) -> str:
        """Return the sort order, a key of `ORDERS`. Empty means newest first."""
        return ""

    def in_period(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Limit the rows to the period, by their ids, which begin with the creation time."""
        within, since, until = self.period
        if within is not None:
            rows = rows.filter(pk__gte=first_id_within(within))
        if since is not None:
            rows = rows.filter(pk__gte=first_id_at(since))
        return rows.filter(pk__lt=first_id_at(until)) if until is not None else rows

    def filter_rows(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Return all matching rows without a scan limit, for actions on all of them."""
        rows = self.in_period(rows)
        return self.match_rows(
            rows.filter(state=self.chosen_values["state"]) if "state" in self.chosen_values else rows
        )

    def match_rows(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Apply all filters except the state."""
        raise NotImplementedError

    def match_in_scan_window(
        self, rows: QuerySet[Any], before: UUID | None, *, oldest_first: bool = False
    ) -> tuple[QuerySet[Any], UUID | None]:
        """Return the matches among the next `scan_window.SCAN_LIMIT` rows, and the id of the last row read.

        The id is None if all rows were read.
        """
        state = self.chosen_values.get("state")
        looked, floor = scan_window.next_scan_window(self.in_period(rows), before, state, oldest_first=oldest_first)
        return self.match_rows(looked), floor

    def match_by_key_or_id(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Return the matching rows whose key or id is the search text, without a scan limit."""
        word = self.chosen_values.get("q")
        return (
            self.filter_rows(rows.filter(id_condition(word) | scan_window.has_key_condition(word)))
            if word
            else rows.none()
        )
