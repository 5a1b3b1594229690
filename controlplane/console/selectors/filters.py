"""What the lists are filtered by. A filter stands in the address, and can say itself in words."""

from functools import cached_property
from typing import Any
from uuid import UUID

from django import forms
from django.db.models import BooleanField, OuterRef, Q, QuerySet, Subquery, Value
from django.http import QueryDict

from jobs import reach
from jobs.models import Attempt
from jobs.states import ExecutionState, JobKind, JobState
from liveness import states
from liveness.states import ServerState, ServerType

LOST = [ServerState.DISCONNECTED, ServerState.ERROR]
NEEDS_ATTENTION = Q(state__in=LOST) | Q(late=True)

EVERY_ENDED = "ended"
"""In place of a state: every one of those that are over."""


def choices(words: Any) -> list[tuple[str, str]]:
    return [("", "any"), *((str(word), str(word)) for word in words)]


class Filter(forms.Form):
    """Fields that are empty do not filter; what makes no sense filters nothing out, and is said."""

    use_required_attribute = False

    def __init__(self, data: QueryDict | None = None) -> None:
        super().__init__(data, auto_id="by-%s")
        self.full_clean()

    def apply(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        raise NotImplementedError

    @property
    def chosen(self) -> dict[str, Any]:
        return {name: value for name, value in self.cleaned_data.items() if value}

    @property
    def query(self) -> str:
        """As it stands in an address."""
        address = QueryDict(mutable=True)
        address.update({name: "1" if value is True else str(value) for name, value in self.chosen.items()})
        return address.urlencode()

    @property
    def words(self) -> str:
        """As people say it."""
        said = [name if value is True else f"{name} {value}" for name, value in self.chosen.items()]
        return ", ".join(said)


class ServerFilter(Filter):
    q = forms.CharField(required=False, label="Search", max_length=200)
    cluster = forms.CharField(required=False, max_length=200)
    type = forms.ChoiceField(required=False, choices=choices(ServerType))
    state = forms.ChoiceField(
        required=False, choices=[("", "not ended"), (EVERY_ENDED, "all that ended"), *choices(ServerState)[1:]]
    )
    tag = forms.CharField(required=False, max_length=200)
    version = forms.CharField(required=False, max_length=200)
    attention = forms.BooleanField(required=False, label="Needs attention")

    def apply(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Those that have ended only if they are asked for by their state."""
        matching = self.narrow(rows)
        return matching if self.wants_ended else matching.exclude(state__in=states.GONE)

    def narrow(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        chosen = self.chosen
        for name in ("cluster", "type", "version"):
            if name in chosen:
                rows = rows.filter(**{name: chosen[name]})
        if self.states:
            rows = rows.filter(state__in=self.states)
        if "tag" in chosen:
            rows = rows.filter(tags__contains=[chosen["tag"]])
        if "attention" in chosen:
            rows = rows.filter(NEEDS_ATTENTION)
        if "q" in chosen:
            word = chosen["q"]
            rows = rows.filter(Q(name__icontains=word) | Q(hostname__icontains=word) | by_id(word))
        return rows

    @property
    def states(self) -> set[str]:
        """Those asked for; none: whichever."""
        state = self.chosen.get("state")
        return set(states.GONE) if state == EVERY_ENDED else {state} if state else set()

    @property
    def wants_ended(self) -> bool:
        return bool(self.states) and self.states <= states.GONE


class Searched(Filter):
    """Of rows that sort by id. What no index finds is looked for only so far at once."""

    def apply(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """All that match, however many there are to look at: for what is done to all of them."""
        return self.match(rows.filter(state=self.chosen["state"]) if "state" in self.chosen else rows)

    def match(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """All but the state."""
        raise NotImplementedError

    def within_reach(self, rows: QuerySet[Any], before: UUID | None) -> tuple[QuerySet[Any], UUID | None]:
        """What matches of the next `reach.LOOKED` rows, and the id of the last of these; None: of all."""
        looked, floor = reach.next_of(rows, before, self.chosen.get("state"))
        return self.match(looked), floor

    def named(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """What matches and has what is searched for as its key or id: it is found wherever it is."""
        word = self.chosen.get("q")
        return self.apply(rows.filter(by_id(word) | reach.has_key(word))) if word else rows.none()


class JobFilter(Searched):
    state = forms.ChoiceField(required=False, choices=choices(JobState))
    kind = forms.ChoiceField(required=False, choices=choices(JobKind))
    tag = forms.CharField(required=False, max_length=200)
    server = forms.CharField(required=False, max_length=200, label="Server")
    q = forms.CharField(required=False, label="Search", max_length=200)

    def match(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        chosen = self.chosen
        if "kind" in chosen:
            rows = rows.filter(kind=chosen["kind"])
        if "tag" in chosen:
            rows = rows.filter(required_tags__contains=[chosen["tag"]])
        if "q" in chosen:
            word = chosen["q"]
            said = Q(action__command__icontains=word) | Q(action__path__icontains=word) | Q(key=word)
            rows = rows.filter(said | by_id(word))
        return rows

    @cached_property
    def attempts(self) -> tuple[QuerySet[Attempt], bool]:
        return reach.attempts_on(self.chosen["server"], as_uuid(self.chosen["server"]))

    def without_state(self) -> "JobFilter":
        """The same, for jobs in any state."""
        said: Any = self.data
        rest = said.copy()
        rest.pop("state", None)
        wider = JobFilter(rest)
        if "server" in wider.chosen:
            wider.attempts = self.attempts
        return wider

    def apply(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        matching = super().apply(rows)
        return matching.filter(pk__in=self.attempts[0].values("job")) if "server" in self.chosen else matching

    def within_reach(self, rows: QuerySet[Any], before: UUID | None) -> tuple[QuerySet[Any], UUID | None]:
        rows = reach.of_kind(rows, self.chosen.get("kind"))
        if "server" not in self.chosen:
            return super().within_reach(rows, before)
        attempts, are_few = self.attempts
        if are_few:
            return super().apply(rows).filter(reach.any_of("pk", attempts.values("job"))), None
        matching, floor = super().within_reach(rows, before)
        # Job by job, never as a join: that reads all attempts of the server, for whichever jobs.
        ran_there = attempts.filter(job=OuterRef("pk")).values(yes=Value(True))[:1]
        return matching.alias(ran_there=Subquery(ran_there, output_field=BooleanField())).filter(ran_there=True), floor


class QuarantineFilter(JobFilter):
    state = None  # type: ignore[assignment]  # every one is FAILED


class ExecutionFilter(Searched):
    state = forms.ChoiceField(required=False, choices=choices(ExecutionState))
    q = forms.CharField(required=False, label="Search", max_length=200)

    def match(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        word = self.chosen.get("q")
        return rows.filter(Q(name__icontains=word) | Q(key=word) | by_id(word)) if word else rows


class ActivityFilter(Filter):
    KINDS = {
        "server": "transitions of servers",
        "attempt": "interrupted attempts",
        "refusal": "refused reports",
        "action": "operator actions",
    }

    kind = forms.ChoiceField(required=False, choices=[("", "any"), *KINDS.items()], label="What")
    server = forms.CharField(required=False, max_length=200)
    who = forms.CharField(required=False, max_length=200, label="By whom")


def by_id(word: str) -> Q:
    found = as_uuid(word)
    return Q(pk=found) if found else Q(pk__in=[])


def as_uuid(said: str | None) -> UUID | None:
    try:
        return UUID(said) if said else None
    except ValueError:
        return None
