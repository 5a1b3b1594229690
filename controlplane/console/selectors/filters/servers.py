"""Filters of servers and of clusters."""

from typing import Any

from django import forms
from django.db.models import F, Q, QuerySet

from controlplane.console.selectors.filters.base import Filter, choices_of, choices_of_states
from controlplane.core.ids import id_condition
from liveness import states
from liveness.states import ServerState, ServerType

EVERY_ENDED = "ended"
"""Filter value in place of a state: every ended state."""


SORTED_BY = {
    "name": "name", "state": "state", "heartbeat": "last_heartbeat_at", "version": "version", "up": "created_at",
}  # fmt: skip
"""Columns of the list by the value of `?sort=`. A minus before the value reverses the order."""

SORTS = [sign + name for name in SORTED_BY for sign in ("", "-")]


class ServerListFilter(Filter):
    q = forms.CharField(required=False, label="Search", max_length=200)
    namespace = forms.CharField(required=False, max_length=255)
    cluster = forms.CharField(required=False, max_length=255)
    type = forms.ChoiceField(required=False, choices=choices_of(ServerType))
    state = forms.ChoiceField(
        required=False, choices=[("", "not ended"), (EVERY_ENDED, "all ended"), *choices_of_states(ServerState)[1:]]
    )
    tag = forms.CharField(required=False, max_length=200)
    version = forms.CharField(required=False, max_length=255)
    attention = forms.BooleanField(required=False, label="Needs attention")
    sort = forms.ChoiceField(
        required=False,
        widget=forms.HiddenInput,
        choices=[(sign + name, name) for name in SORTED_BY for sign in ("", "-")],
    )

    @property
    def chosen_values(self) -> dict[str, Any]:
        """Return the chosen values without the sort order, which does not change the matches."""
        return {name: value for name, value in super().chosen_values.items() if name != "sort"}

    @property
    def texts(self) -> dict[str, str]:
        return {**super().texts, **({"sort": self.order} if self.order else {})}

    @property
    def order(self) -> str:
        """Return the sort order. Empty means that servers that need attention come first."""
        return str(self.cleaned_data.get("sort") or "")

    def sort_rows(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Return the rows in the chosen order, with unknown values last."""
        if not self.order:
            return rows
        column = F(SORTED_BY[self.order.removeprefix("-")])
        chosen = column.desc(nulls_last=True) if self.order.startswith("-") else column.asc(nulls_last=True)
        return rows.order_by(chosen, "pk")

    def sort_found(self, found: list[Any]) -> list[Any]:
        """Return the read rows of one page in the chosen order."""
        if not self.order:
            return found
        column, is_down = SORTED_BY[self.order.removeprefix("-")], self.order.startswith("-")
        by_id = sorted(found, key=lambda row: row.pk)
        known = [row for row in by_id if getattr(row, column) is not None]
        known.sort(key=lambda row: getattr(row, column), reverse=is_down)
        return known + [row for row in by_id if getattr(row, column) is None]

    def filter_rows(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Return the matching servers. Ended servers match only if the filter asks for them."""
        matching = self.narrow_rows(rows)
        return matching if self.wants_ended else matching.exclude(state__in=states.RETIRED)

    def narrow_rows(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        values = self.chosen_values
        for name in ("namespace", "cluster", "type", "version"):
            if name in values:
                rows = rows.filter(**{name: values[name]})
        if self.chosen_states:
            rows = rows.filter(state__in=self.chosen_states)
        if "tag" in values:
            rows = rows.filter(tags__contains=[values["tag"]])
        if "attention" in values:
            rows = rows.filter(needs_attention=True)
        if "q" in values:
            word = values["q"]
            rows = rows.filter(Q(name__icontains=word) | Q(hostname__icontains=word) | id_condition(word))
        return rows

    @property
    def chosen_states(self) -> set[str]:
        """Return the chosen states. Empty means any state."""
        state = self.chosen_values.get("state")
        return set(states.RETIRED) if state == EVERY_ENDED else {state} if state else set()

    @property
    def wants_ended(self) -> bool:
        return bool(self.chosen_states) and self.chosen_states <= states.RETIRED


class ScopeFilter(Filter):
    """Filter by one cluster."""

    cluster = forms.CharField(required=False, max_length=255)

    @property
    def cluster_name(self) -> str:
        """Return the chosen cluster, or an empty text for all clusters."""
        name: str = self.chosen_values.get("cluster", "")
        return name
