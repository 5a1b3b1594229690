"""Filters of jobs and of their log lines."""

from functools import cached_property
from typing import Any
from uuid import UUID

from django import forms
from django.db.models import BooleanField, F, Func, OuterRef, QuerySet, Subquery, TextField, Value

from controlplane.console.selectors.failures import MESSAGE_PATTERN
from controlplane.console.selectors.filters.base import ORDERS, Filter, SearchFilter, choices_of, choices_of_states
from controlplane.core.ids import parse_uuid
from jobs import scan_window
from jobs.models import Attempt
from jobs.selectors.job_search import jobs_with_text
from jobs.selectors.jobs import IS_RESUBMITTED, flagged_job_ids
from jobs.states import Flag, JobKind, JobState

JOINED_TAGS = Func(F("required_tags"), Value(","), function="array_to_string", output_field=TextField())


class JobListFilter(SearchFilter):
    state = forms.ChoiceField(required=False, choices=choices_of_states(JobState))
    kind = forms.ChoiceField(required=False, choices=choices_of(JobKind))
    tag = forms.CharField(required=False, max_length=200)
    server = forms.CharField(required=False, max_length=255, label="Server")
    namespace = forms.CharField(required=False, max_length=255)
    q = forms.CharField(required=False, label="Search", max_length=200)
    code = forms.CharField(required=False, max_length=200, label="Error code")
    error = forms.CharField(required=False, max_length=300, widget=forms.HiddenInput)
    """Error message with # for each number, as in the groups of errors."""
    queue = forms.CharField(required=False, max_length=2000, widget=forms.HiddenInput)
    """All required tags of a job, joined by commas."""
    flag = forms.ChoiceField(required=False, choices=choices_of(Flag), label="Stuck")
    open = forms.BooleanField(required=False, label="Not yet resubmitted")
    sort = forms.ChoiceField(required=False, choices=[("", "newest"), *ORDERS.items()])

    @property
    def chosen_values(self) -> dict[str, Any]:
        """Return the chosen values without the sort order, which does not change the matches."""
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
        if "queue" in values:
            rows = rows.alias(queue=JOINED_TAGS).filter(queue=values["queue"])
        if "q" in values:
            rows = jobs_with_text(rows, values["q"])
        return rows

    @cached_property
    def flagged(self) -> list[UUID]:
        return flagged_job_ids(self.chosen_values["flag"], scan_window.SCAN_LIMIT)

    @cached_property
    def attempts_of_server(self) -> tuple[QuerySet[Attempt], bool]:
        return scan_window.attempts_of_servers(self.chosen_values["server"], parse_uuid(self.chosen_values["server"]))

    def without_state(self) -> "JobListFilter":
        """Return this filter without its state."""
        if "state" not in self.chosen_values:
            return self
        data: Any = self.data
        rest = data.copy()
        rest.pop("state", None)
        wider = JobListFilter(rest)
        if "server" in wider.chosen_values:
            wider.attempts_of_server = self.attempts_of_server
        if "flag" in wider.chosen_values:
            wider.flagged = self.flagged
        return wider

    def filter_rows(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        if "flag" in self.chosen_values:
            rows = rows.filter(pk__in=self.flagged)
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
        if "flag" in self.chosen_values:
            return self.filter_rows(rows), None  # flagged jobs are few
        if "server" not in self.chosen_values:
            return super().match_in_scan_window(rows, before, oldest_first=oldest_first)
        attempts, are_few = self.attempts_of_server
        if are_few:
            return super().filter_rows(rows).filter(scan_window.field_is_any_of("pk", attempts.values("job"))), None
        matching, floor = super().match_in_scan_window(rows, before, oldest_first=oldest_first)
        # This is a subquery for each job, because a join would read all attempts of the server.
        ran_there = attempts.filter(job=OuterRef("pk")).values(yes=Value(True))[:1]
        return matching.alias(ran_there=Subquery(ran_there, output_field=BooleanField())).filter(ran_there=True), floor


class ErrorFilter(JobListFilter):
    sort: Any = None  # the page sorts groups, not jobs
    flag: Any = None  # these jobs have ended


class QuarantineFilter(JobListFilter):
    state: Any = None  # all are FAILED
    flag: Any = None


class LogPageFilter(Filter):
    attempt = forms.IntegerField(required=False, min_value=1, max_value=2**31 - 1, widget=forms.HiddenInput)
    stream = forms.ChoiceField(
        required=False, choices=[("", "both"), ("STDOUT", "standard output"), ("STDERR", "standard error")]
    )
    q = forms.CharField(required=False, label="Search", max_length=200, strip=False)
