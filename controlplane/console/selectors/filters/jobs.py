"""What lists of jobs, and the lines that their code wrote, are filtered by."""

from functools import cached_property
from typing import Any
from uuid import UUID

from django import forms
from django.db.models import BooleanField, OuterRef, Q, QuerySet, Subquery, TextField, Value
from django.db.models.functions import Cast

from controlplane.console.selectors.failures import MESSAGE_PATTERN
from controlplane.console.selectors.filters.base import ORDERS, Filter, SearchFilter, choices_of
from controlplane.console.selectors.ids import ID_PART, id_condition, parse_uuid
from jobs import scan_window
from jobs.models import Attempt
from jobs.selectors.jobs import IS_RESUBMITTED
from jobs.states import JobKind, JobState


class JobFilter(SearchFilter):
    state = forms.ChoiceField(required=False, choices=choices_of(JobState))
    kind = forms.ChoiceField(required=False, choices=choices_of(JobKind))
    tag = forms.CharField(required=False, max_length=200)
    server = forms.CharField(required=False, max_length=255, label="Server")
    namespace = forms.CharField(required=False, max_length=255)
    q = forms.CharField(required=False, label="Search", max_length=200)
    code = forms.CharField(required=False, max_length=200, label="Error code")
    error = forms.CharField(required=False, max_length=300, widget=forms.HiddenInput)
    """A message with # for each number, as errors are grouped."""
    open = forms.BooleanField(required=False, label="Not yet resubmitted")
    sort = forms.ChoiceField(required=False, choices=[("", "newest"), *ORDERS.items()])

    @property
    def chosen_values(self) -> dict[str, Any]:
        """How the list is sorted changes nothing in what is found."""
        return {name: value for name, value in super().chosen_values.items() if name != "sort"}

    @property
    def texts(self) -> dict[str, str]:
        return {**super().texts, **({"sort": self.order} if self.order else {})}

    @property
    def order(self) -> str:
        return str(self.cleaned_data.get("sort") or "")

    def match_rows(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        values = self.chosen_values
        if "open" in values:
            rows = rows.alias(again=IS_RESUBMITTED).filter(again=False)
        if "code" in values:
            rows = rows.filter(error__code=values["code"])
        if "error" in values:
            rows = rows.alias(pattern=MESSAGE_PATTERN).filter(pattern=values["error"])
        for name in ("kind", "namespace"):
            if name in values:
                rows = rows.filter(**{name: values[name]})
        if "tag" in values:
            rows = rows.filter(required_tags__contains=[values["tag"]])
        if "q" in values:
            word = values["q"]
            code = (
                Q(action__command__icontains=word) | Q(action__path__icontains=word) | Q(action__task__icontains=word)
            )
            error = Q(error__code__icontains=word) | Q(error__message__icontains=word)
            matches = code | error | Q(action__name__icontains=word) | Q(name__icontains=word) | Q(key=word)
            if ID_PART.fullmatch(word):
                rows = rows.alias(id_text=Cast("pk", TextField()))
                matches |= Q(id_text__endswith=word.lower())
            rows = rows.filter(matches | id_condition(word))
        return rows

    @cached_property
    def attempts_of_server(self) -> tuple[QuerySet[Attempt], bool]:
        return scan_window.attempts_of_servers(self.chosen_values["server"], parse_uuid(self.chosen_values["server"]))

    def without_state(self) -> "JobFilter":
        """The same, for jobs in any state."""
        if "state" not in self.chosen_values:
            return self
        data: Any = self.data
        rest = data.copy()
        rest.pop("state", None)
        wider = JobFilter(rest)
        if "server" in wider.chosen_values:
            wider.attempts_of_server = self.attempts_of_server
        return wider

    def filter_rows(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        matching = super().filter_rows(rows)
        return (
            matching.filter(pk__in=self.attempts_of_server[0].values("job"))
            if "server" in self.chosen_values
            else matching
        )

    def match_in_scan_window(
        self, rows: QuerySet[Any], before: UUID | None, *, oldest_first: bool = False
    ) -> tuple[QuerySet[Any], UUID | None]:
        rows = scan_window.filter_by_kind(rows, self.chosen_values.get("kind"))
        if "server" not in self.chosen_values:
            return super().match_in_scan_window(rows, before, oldest_first=oldest_first)
        attempts, are_few = self.attempts_of_server
        if are_few:
            return super().filter_rows(rows).filter(scan_window.field_is_any_of("pk", attempts.values("job"))), None
        matching, floor = super().match_in_scan_window(rows, before, oldest_first=oldest_first)
        # Job by job, never as a join: that reads all attempts of the server, for whichever jobs.
        ran_there = attempts.filter(job=OuterRef("pk")).values(yes=Value(True))[:1]
        return matching.alias(ran_there=Subquery(ran_there, output_field=BooleanField())).filter(ran_there=True), floor


class ErrorFilter(JobFilter):
    sort: Any = None  # of groups


class QuarantineFilter(JobFilter):
    state: Any = None  # every one is FAILED


class LogFilter(Filter):
    attempt = forms.IntegerField(required=False, min_value=1, max_value=2**31 - 1, widget=forms.HiddenInput)
    stream = forms.ChoiceField(
        required=False, choices=[("", "both"), ("STDOUT", "standard output"), ("STDERR", "standard error")]
    )
    q = forms.CharField(required=False, label="Search", max_length=200, strip=False)
