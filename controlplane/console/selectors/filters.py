"""What the lists are filtered by. A filter stands in the address, and can say itself in words."""

import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any
from uuid import UUID

from django import forms
from django.db.models import BooleanField, OuterRef, Q, QuerySet, Subquery, TextField, Value
from django.db.models.functions import Cast
from django.http import QueryDict

from controlplane.console.selectors.failures import MESSAGE_PATTERN
from controlplane.console.selectors.periods import MomentField, first_id_at, first_id_within, format_field
from jobs import scan_window
from jobs.models import Attempt
from jobs.selectors.jobs import IS_RESUBMITTED
from jobs.services.alerts import RULES
from jobs.states import ExecutionState, JobKind, JobState, SlotOutcome, TriggerState
from liveness import states
from liveness.models import Brake
from liveness.states import ServerState, ServerType

WITHIN = {
    "15m": ("15 min", 15 * 60), "1h": ("hour", 3600), "24h": ("24 h", 86400), "7d": ("7 days", 7 * 86400),
}  # fmt: skip
"""Periods that end now: as it stands in an address, in words, and in seconds."""
PERIOD = ("within", "since", "until")
INDEXED = {"state", *PERIOD}
"""What an index finds, however many rows there are."""
ORDERS = {"oldest": "oldest", "longest": "longest run", "priority": "highest priority"}
WORDS = {"within": "of the last"}
EVERY_ENDED = "ended"
"""In place of a state: every one of those that are over."""


def choices_of(words: Iterable[str]) -> list[tuple[str, str]]:
    return [("", "any"), *((str(word), str(word)) for word in words)]


class Filter(forms.Form):
    """Fields that are empty do not filter; what makes no sense filters nothing out, and is said."""

    use_required_attribute = False

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

    order = ""
    """How the rows are sorted, of `listing.ORDERS`; empty: the newest first."""

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
    def order(self) -> str:  # type: ignore[override]
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
    sort = None  # type: ignore[assignment]  # of groups


class QuarantineFilter(JobFilter):
    state = None  # type: ignore[assignment]  # every one is FAILED


class ExecutionFilter(SearchFilter):
    state = forms.ChoiceField(required=False, choices=choices_of(ExecutionState))
    namespace = forms.CharField(required=False, max_length=255)
    q = forms.CharField(required=False, label="Search", max_length=200)

    def match_rows(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        word = self.chosen_values.get("q")
        if "namespace" in self.chosen_values:
            rows = rows.filter(namespace=self.chosen_values["namespace"])
        return rows.filter(Q(name__icontains=word) | Q(key=word) | id_condition(word)) if word else rows


class TriggerFilter(Filter):
    state = forms.ChoiceField(required=False, choices=choices_of(TriggerState))
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
    outcome = forms.ChoiceField(required=False, choices=choices_of(SlotOutcome), label="Past slots")


class ScopeFilter(Filter):
    """Of one cluster, or of all."""

    cluster = forms.CharField(required=False, max_length=255)

    @property
    def cluster_name(self) -> str:
        """Empty: of all."""
        name: str = self.chosen_values.get("cluster", "")
        return name


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


class LogFilter(Filter):
    attempt = forms.IntegerField(required=False, min_value=1, max_value=2**31 - 1, widget=forms.HiddenInput)
    stream = forms.ChoiceField(
        required=False, choices=[("", "both"), ("STDOUT", "standard output"), ("STDERR", "standard error")]
    )
    q = forms.CharField(required=False, label="Search", max_length=200, strip=False)


class ActivityFilter(PeriodFilter):
    KINDS = {
        "server": "transitions of servers",
        "attempt": "interrupted attempts",
        "refusal": "refused reports",
        "action": "operator actions",
    }

    kind = forms.ChoiceField(required=False, choices=[("", "any"), *KINDS.items()], label="What")
    server = forms.CharField(required=False, max_length=255)
    cluster = forms.CharField(required=False, max_length=255)
    who = forms.CharField(required=False, max_length=200, label="By whom")


ID_PART = re.compile(r"[0-9a-fA-F-]{4,36}")


def id_condition(word: str) -> Q:
    """Those that have it as their id, or whose id begins with it: found by their index."""
    if id := parse_uuid(word):
        return Q(pk=id)
    digits = word.replace("-", "")
    if not ID_PART.fullmatch(word) or not 8 <= len(digits) < 32:
        return Q(pk__in=[])
    return Q(pk__range=(UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f"))))


def parse_uuid(text: str | None) -> UUID | None:
    try:
        return UUID(text) if text else None
    except ValueError:
        return None
