"""What lists of what happened are filtered by."""

from django import forms
from django.db.models import Q

from controlplane.console.selectors.filters.base import Filter, PeriodFilter, choices_of
from jobs.services.alerts import RULES
from liveness.models import Brake


class ActivityFilter(PeriodFilter):
    KINDS = {
        "server": "transitions of servers",
        "attempt": "interrupted attempts",
        "refusal": "refused reports",
        "action": "actions of operators and clients",
    }

    kind = forms.ChoiceField(required=False, choices=[("", "any"), *KINDS.items()], label="What")
    server = forms.CharField(required=False, max_length=255)
    cluster = forms.CharField(required=False, max_length=255)
    who = forms.CharField(required=False, max_length=200, label="By whom")


class IncidentFilter(Filter):
    rule = forms.ChoiceField(required=False, choices=choices_of(RULES))
    cluster = forms.CharField(required=False, max_length=255, label="Cluster, or type")

    @property
    def condition(self) -> Q:
        values = self.chosen_values
        condition = Q(rule=values["rule"]) if "rule" in values else Q()
        return (
            condition & Q(subject__in=[values["cluster"], *Brake.keys_of(values["cluster"])])
            if "cluster" in values
            else condition
        )
