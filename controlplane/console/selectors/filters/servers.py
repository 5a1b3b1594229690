"""What lists of servers, and what is of a cluster, are filtered by."""

from typing import Any

from django import forms
from django.db.models import Q, QuerySet

from controlplane.console.selectors.filters.base import Filter, choices_of
from controlplane.console.selectors.ids import id_condition
from liveness import states
from liveness.states import ServerState, ServerType

EVERY_ENDED = "ended"
"""In place of a state: every one of those that are over."""


class ServerFilter(Filter):
    q = forms.CharField(required=False, label="Search", max_length=200)
    namespace = forms.CharField(required=False, max_length=255)
    cluster = forms.CharField(required=False, max_length=255)
    type = forms.ChoiceField(required=False, choices=choices_of(ServerType))
    state = forms.ChoiceField(
        required=False, choices=[("", "not ended"), (EVERY_ENDED, "all that ended"), *choices_of(ServerState)[1:]]
    )
    tag = forms.CharField(required=False, max_length=200)
    version = forms.CharField(required=False, max_length=255)
    attention = forms.BooleanField(required=False, label="Needs attention")

    def filter_rows(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Those that have ended only if they are asked for by their state."""
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
        """Those asked for; none: whichever."""
        state = self.chosen_values.get("state")
        return set(states.RETIRED) if state == EVERY_ENDED else {state} if state else set()

    @property
    def wants_ended(self) -> bool:
        return bool(self.chosen_states) and self.chosen_states <= states.RETIRED


class ScopeFilter(Filter):
    """Of one cluster, or of all."""

    cluster = forms.CharField(required=False, max_length=255)

    @property
    def cluster_name(self) -> str:
        """Empty: of all."""
        name: str = self.chosen_values.get("cluster", "")
        return name
