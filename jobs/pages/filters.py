"""What the lists are filtered by. A filter stands in the address, and can say itself in words."""

from typing import Any
from uuid import UUID

from django import forms
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.http import QueryDict

from jobs.models import Attempt
from jobs.states import ExecutionState, JobKind, JobState
from liveness import states
from liveness.states import ServerState, ServerType

LOST = [ServerState.DISCONNECTED, ServerState.ERROR]
NEEDS_ATTENTION = Q(state__in=LOST) | Q(state__in=states.ALIVE, fresh=False)


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
    state = forms.ChoiceField(required=False, choices=choices(ServerState))
    tag = forms.CharField(required=False, max_length=200)
    version = forms.CharField(required=False, max_length=200)
    attention = forms.BooleanField(required=False, label="Needs attention")

    def apply(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Those that have ended only if they are asked for by their state."""
        matching = self.narrow(rows)
        return matching if self.wants_ended else matching.exclude(state__in=states.GONE)

    def narrow(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        chosen = self.chosen
        for name in ("cluster", "type", "state", "version"):
            if name in chosen:
                rows = rows.filter(**{name: chosen[name]})
        if "tag" in chosen:
            rows = rows.filter(tags__contains=[chosen["tag"]])
        if "attention" in chosen:
            rows = rows.filter(NEEDS_ATTENTION)
        if "q" in chosen:
            word = chosen["q"]
            rows = rows.filter(Q(name__icontains=word) | Q(hostname__icontains=word) | by_id(word))
        return rows

    @property
    def wants_ended(self) -> bool:
        return self.chosen.get("state") in states.GONE


class JobFilter(Filter):
    state = forms.ChoiceField(required=False, choices=choices(JobState))
    kind = forms.ChoiceField(required=False, choices=choices(JobKind))
    tag = forms.CharField(required=False, max_length=200)
    server = forms.CharField(required=False, max_length=200, label="Server")
    q = forms.CharField(required=False, label="Search", max_length=200)

    def apply(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        chosen = self.chosen
        for name in ("state", "kind"):
            if name in chosen:
                rows = rows.filter(**{name: chosen[name]})
        if "tag" in chosen:
            rows = rows.filter(required_tags__contains=[chosen["tag"]])
        if "server" in chosen:
            named = Q(server__name=chosen["server"])
            if found := as_uuid(chosen["server"]):
                named |= Q(server=found)
            rows = rows.filter(Exists(Attempt.objects.filter(named, job=OuterRef("pk"))))
        if "q" in chosen:
            word = chosen["q"]
            said = Q(action__command__icontains=word) | Q(action__path__icontains=word) | Q(key=word)
            rows = rows.filter(said | by_id(word))
        return rows


class QuarantineFilter(JobFilter):
    state = None  # type: ignore[assignment]  # every one is FAILED


class ExecutionFilter(Filter):
    state = forms.ChoiceField(required=False, choices=choices(ExecutionState))
    q = forms.CharField(required=False, label="Search", max_length=200)

    def apply(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        if "state" in self.chosen:
            rows = rows.filter(state=self.chosen["state"])
        if "q" in self.chosen:
            word = self.chosen["q"]
            rows = rows.filter(Q(name__icontains=word) | Q(key=word) | by_id(word))
        return rows


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
