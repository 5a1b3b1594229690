"""Filters of the activity list and of the incidents."""

from django import forms
from django.db.models import Q

from controlplane.console.selectors.filters.base import Filter, PeriodFilter, choices_of
from jobs.services.alert_rules import RULES
from liveness.selectors.events import is_brake_of_cluster


class ActivityFilter(PeriodFilter):
    KINDS = {
        "server": "state changes of servers",
        "attempt": "interrupted attempts",
        "refusal": "superseded reports",
        "action": "actions of operators and clients",
    }

    kind = forms.ChoiceField(required=False, choices=[("", "any"), *KINDS.items()], label="Kind")
    server = forms.CharField(required=False, max_length=255)
    cluster = forms.CharField(required=False, max_length=255)
    who = forms.CharField(required=False, max_length=200, label="By")


class IncidentFilter(Filter):
    rule = forms.ChoiceField(required=False, choices=choices_of(RULES))
    cluster = forms.CharField(required=False, max_length=255, label="Cluster or type")

    @property
    def condition(self) -> Q:
        values = self.chosen_values
        condition = Q(rule=values["rule"]) if "rule" in values else Q()
        if "cluster" not in values:
            return condition
        of_cluster = is_brake_of_cluster("subject", values["cluster"])
        return condition & (Q(subject=values["cluster"]) | Q(rule="brake") & of_cluster)
