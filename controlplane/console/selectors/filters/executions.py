"""Filters of executions, triggers and slots."""

from typing import Any

from django import forms
from django.db.models import Q, QuerySet

from controlplane.console.selectors.filters.base import Filter, SearchFilter, choices_of_states
from controlplane.core.ids import id_condition
from jobs.states import ExecutionState, SlotOutcome, TriggerState


class ExecutionListFilter(SearchFilter):
    state = forms.ChoiceField(required=False, choices=choices_of_states(ExecutionState))
    namespace = forms.CharField(required=False, max_length=255)
    q = forms.CharField(required=False, label="Search", max_length=200)

    def match_rows(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        word = self.chosen_values.get("q")
        if "namespace" in self.chosen_values:
            rows = rows.filter(namespace=self.chosen_values["namespace"])
        return rows.filter(Q(name__icontains=word) | Q(key=word) | id_condition(word)) if word else rows


class TriggerListFilter(Filter):
    state = forms.ChoiceField(required=False, choices=choices_of_states(TriggerState))
    namespace = forms.CharField(required=False, max_length=255)
    q = forms.CharField(required=False, label="Search", max_length=200)

    def filter_rows(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        if state := self.chosen_values.get("state"):
            rows = rows.filter(enabled=state == TriggerState.ENABLED)
        if "namespace" in self.chosen_values:
            rows = rows.filter(namespace=self.chosen_values["namespace"])
        word = self.chosen_values.get("q")
        return rows.filter(Q(name__icontains=word) | id_condition(word)) if word else rows


class SlotFilter(Filter):
    outcome = forms.ChoiceField(required=False, choices=choices_of_states(SlotOutcome), label="Past slots")
