"""What the lists are filtered by. A filter stands in the address, and can be put in words."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django import forms
from django.db.models import QuerySet
from django.http import QueryDict

from controlplane.console.selectors.filters.rendering import FieldRenderer
from controlplane.console.selectors.ids import id_condition
from controlplane.console.selectors.periods import MomentField, first_id_at, first_id_within, format_field
from jobs import scan_window

WITHIN = {
    "15m": ("15 min", 15 * 60), "1h": ("hour", 3600), "24h": ("24 h", 86400), "7d": ("7 days", 7 * 86400),
}  # fmt: skip
"""Periods that end now: as it stands in an address, in words, and in seconds."""

PERIOD = ("within", "since", "until")

INDEXED = {"state", *PERIOD}
"""What an index finds, however many rows there are."""

ORDERS = {"oldest": "oldest", "longest": "longest run", "priority": "highest priority"}

WORDS = {"within": "of the last", "q": "search"}


def choices_of(words: Iterable[str]) -> list[tuple[str, str]]:
    return [("", "any"), *((str(word), str(word)) for word in words)]


class Filter(forms.Form):
    """Fields that are empty do not filter; what makes no sense filters nothing out, and the form says so."""

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
        """What is chosen, as it stands in an address."""
        return {name: format_field(value) for name, value in self.chosen_values.items()}

    @property
    def query(self) -> str:
        """As it stands in an address."""
        address = QueryDict(mutable=True)
        address.update(self.texts)
        return address.urlencode()

    @property
    def words(self) -> str:
        """As people say it."""
        descriptions = [
            name if value is True else f"{WORDS.get(name, name)} {format_field(value)}"
            for name, value in self.chosen_values.items()
        ]
        return ", ".join(descriptions)


class PeriodFilter(Filter):
    """Of what happened at some time."""

    within = forms.ChoiceField(
        required=False, choices=[("", "any time"), *((name, f"last {words}") for name, (words, _) in WITHIN.items())]
    )
    since = MomentField(label="From (UTC)")
    until = MomentField(label="Until (UTC)")

    def __init__(self, data: QueryDict | None = None) -> None:
        super().__init__(data)
        self.order_fields([name for name in self.fields if name not in (*PERIOD, "sort")])

    @property
    def has_moments(self) -> bool:
        return bool(self.data and (self.data.get("since") or self.data.get("until")))

    @property
    def period(self) -> tuple[timedelta | None, datetime | None, datetime | None]:
        """How far back from now, from which moment on, and before which."""
        values = self.chosen_values
        within = timedelta(seconds=WITHIN[values["within"]][1]) if "within" in values else None
        return within, values.get("since"), values.get("until")


class SearchFilter(PeriodFilter):
    """Of rows that sort by id. What no index finds is looked for only so far at once."""

    @property
    def order(self) -> str:
        """How the rows are sorted, of `ORDERS`; empty: the newest first."""
        return ""

    def in_period(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Narrowed to those made in the period: by their ids, which begin with the moment."""
        within, since, until = self.period
        if within is not None:
            rows = rows.filter(pk__gte=first_id_within(within))
        if since is not None:
            rows = rows.filter(pk__gte=first_id_at(since))
        return rows.filter(pk__lt=first_id_at(until)) if until is not None else rows

    def filter_rows(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """All that match, however many there are to look at: for what is done to all of them."""
        rows = self.in_period(rows)
        return self.match_rows(
            rows.filter(state=self.chosen_values["state"]) if "state" in self.chosen_values else rows
        )

    def match_rows(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """All but the state."""
        raise NotImplementedError

    def match_in_scan_window(
        self, rows: QuerySet[Any], before: UUID | None, *, oldest_first: bool = False
    ) -> tuple[QuerySet[Any], UUID | None]:
        """What matches of the next `scan_window.SCAN_LIMIT` rows, and the id of the last of these; None: of all."""
        state = self.chosen_values.get("state")
        looked, floor = scan_window.next_scan_window(self.in_period(rows), before, state, oldest_first=oldest_first)
        return self.match_rows(looked), floor

    def match_by_key_or_id(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """What matches and has what is searched for as its key or id: it is found wherever it is."""
        word = self.chosen_values.get("q")
        return (
            self.filter_rows(rows.filter(id_condition(word) | scan_window.has_key_condition(word)))
            if word
            else rows.none()
        )
