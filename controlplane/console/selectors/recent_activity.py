"""Recent events: state changes, actions, interrupted attempts and superseded reports."""

from collections.abc import Collection, Iterable
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID

from django.db.models import (
    Case,
    F,
    Func,
    IntegerField,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    TextField,
    UUIDField,
    Value,
    When,
)
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast, Coalesce, Left, NullIf
from django.db.models.lookups import Exact

from controlplane.core.composed import Composed, compose_query
from jobs import scan_window
from jobs.models import Attempt, LateReport, WorkerJob
from liveness.models import Clock, Server, ServerEvent
from liveness.selectors.events import is_brake_of_cluster
from liveness.states import Subject

IS_TRANSITION = Q(action="")
SUBJECTS_OF_VIEWS = {
    "server": {Subject.SERVER, Subject.TOKEN, Subject.BRAKE, Subject.INSTANCE},
    "job": {Subject.JOB, Subject.ATTEMPTS, Subject.HOLD},
    "execution": {Subject.EXECUTION},
    "trigger": {Subject.TRIGGER},
}
"""Event subjects that each view permission (a key of `VIEWS`) lets a user see."""
NO_NUMBER = Cast(Value(None), IntegerField())
LABEL_LENGTH = 80
LABEL_FIELDS = [
    NullIf("name", Value("", output_field=TextField())),
    *(KeyTextTransform(field, "action") for field in ("path", "name", "task", "command", "type")),
]


def label_of_job(id: str) -> Coalesce:
    """Return the name of a job or its code. It is empty if the job was deleted.

    `id` is a column. Only shown rows are looked up, because this is a subquery.
    """
    job = WorkerJob.objects.filter(pk=Cast(OuterRef(id), UUIDField()))
    label = Left(Coalesce(*LABEL_FIELDS, output_field=TextField()), LABEL_LENGTH)
    return Coalesce(Subquery(job.values(label=label)), Value(""), output_field=TextField())


NAME_OF_SUBJECT = Case(
    When(subject_type=Subject.JOB, subject_name="", then=label_of_job("subject_id")), default=F("subject_name")
)
COLUMNS: dict[str, tuple[Any, ...]] = {
    "transitions": (
        Case(When(IS_TRANSITION, then=Value("server")), default=Value("action")), "at",
        "subject_type", "subject_id", NAME_OF_SUBJECT, "server_id", "server_name", NO_NUMBER, "from_state",
        Case(When(IS_TRANSITION, then=F("to_state")), default=F("action")), "actor", "reason",
    ),
    "interruptions": (
        Value("attempt"), "interrupted_at", Value("job"), Cast("job_id", TextField()), label_of_job("job_id"),
        "server_id", "server__name", "number", Value(""), "state", "ended_by", "reason",
    ),
    "refusals": (
        Value("refusal"), "at", Value("job"), Cast("job_id", TextField()), label_of_job("job_id"),
        "attempt__server_id", "attempt__server__name", "attempt__number", Value(""), "event", Value("fence"), "reason",
    ),
}  # fmt: skip

# This is a subquery for each row, because a join would read all attempts of the server, however old.
NAME = Server.objects.filter(pk=OuterRef("server")).values("name")
NAME_OF_ATTEMPTS = Attempt.objects.filter(pk=OuterRef("attempt")).values("server__name")
CLUSTER = Server.objects.filter(pk=OuterRef("server_id")).values("cluster")
CLUSTER_OF_ATTEMPTS = Attempt.objects.filter(pk=OuterRef("attempt")).values("server__cluster")


class ActivityEntry(NamedTuple):
    """State change of a server, operator action, interrupted attempt, or refused report."""

    kind: str
    at: datetime
    subject_type: str
    subject_id: str
    subject_name: str
    server: UUID | None
    server_name: str
    number: int | None
    was: str
    became: str
    actor: str
    reason: str


class ActivitySource(NamedTuple):
    """Query for the entries of one kind: rows that an index finds, and a filter on these rows."""

    name: str
    moment: str
    walk: QuerySet[Any]
    sought: Q = Q()
    of_one: bool = False
    """True if all rows have the same name and are few. Then all of them are read, without the index on time. That
    index would also read the events of all other names.
    """

    @property
    def latest_first(self) -> QuerySet[Any]:
        moment = Func(self.moment, template="(%(expressions)s + interval '0')") if self.of_one else F(self.moment)
        return self.walk.order_by(moment.desc())

    @property
    def end_of_scan(self) -> Subquery:
        """Return the time of the oldest row that a search reads."""
        return Subquery(self.latest_first.values(self.moment)[scan_window.SCAN_LIMIT : scan_window.SCAN_LIMIT + 1])

    def latest_entries(self, limit: int, since: datetime | None) -> QuerySet[Any]:
        within = Q(**{f"{self.moment}__gte": since}) if since else Q()
        return self.latest_first.filter(self.sought, within).values_list(*COLUMNS[self.name])[:limit]


def list_activity(
    limit: int = 20,
    kind: str = "",
    server: str = "",
    who: str = "",
    cluster: str = "",
    before: datetime | None = None,
    after: datetime | None = None,
    sees: Collection[str] = frozenset(SUBJECTS_OF_VIEWS),
) -> tuple[list[ActivityEntry], datetime | None]:
    """Return the latest entries that match the filters, and the time of the oldest row searched.

    The time is None if all rows were searched. Empty filters match everything. `before` is exclusive, `after` is
    inclusive, and `sees` are the view permissions of the user.
    """
    if not any((kind, server, who, cluster, before, after)) and SUBJECTS_OF_VIEWS.keys() <= set(sees):
        return latest_first(compose_latest_activity(limit).fetch_rows())[:limit], None
    some = activity_sources(kind, server, who, cluster, before, after, sees)
    if not some:
        return [], None
    ends = [source.end_of_scan for source in some if source.sought]
    scan_ends = Clock.objects.values_list(*ends).get() if ends else ()
    since = max((end for end in scan_ends if end), default=None)
    first, *others = (source.latest_entries(limit, since) for source in some)
    merged = first.union(*others, all=True) if others else first
    entries = latest_first(merged)
    return entries[:limit], since if len(entries) < limit else None


def latest_first(rows: Iterable[tuple[Any, ...]]) -> list[ActivityEntry]:
    return sorted((ActivityEntry(*row) for row in rows), key=lambda entry: entry.at, reverse=True)


@lru_cache(maxsize=8)
def compose_latest_activity(limit: int) -> Composed:
    """Return the query for the latest events of all kinds, which the overview shows."""
    first, *others = (
        source.latest_entries(limit, None)
        for source in activity_sources("", "", "", "", None, None, SUBJECTS_OF_VIEWS.keys())
    )
    return compose_query(first.union(*others, all=True))


def visible(sees: Collection[str]) -> Q:
    """Return the condition for events that the user may view."""
    if SUBJECTS_OF_VIEWS.keys() <= set(sees):
        return Q()
    return Q(subject_type__in=sorted(set().union(*(SUBJECTS_OF_VIEWS[what] for what in sees))))


def activity_sources(
    kind: str,
    server: str,
    who: str,
    cluster: str,
    before: datetime | None,
    after: datetime | None,
    sees: Collection[str],
) -> list[ActivitySource]:
    transitions, refusals = ServerEvent.objects.order_by(), LateReport.objects.order_by()
    interruptions = Attempt.objects.filter(interrupted_at__isnull=False)
    on_server = from_server = Q()
    if before:
        transitions, refusals = transitions.filter(at__lt=before), refusals.filter(at__lt=before)
        interruptions = interruptions.filter(interrupted_at__lt=before)
    if after:
        transitions, refusals = transitions.filter(at__gte=after), refusals.filter(at__gte=after)
        interruptions = interruptions.filter(interrupted_at__gte=after)
    if server:
        transitions = transitions.filter(server_name=server)
        attempts, are_few = scan_window.attempts_of_servers(server, None)
        if are_few:
            interruptions = interruptions.filter(scan_window.field_is_any_of("pk", attempts.values("pk")))
            refusals = refusals.filter(scan_window.field_is_any_of("attempt", attempts.values("pk")))
        else:
            on_server, from_server = (Q(Exact(Subquery(names), server)) for names in (NAME, NAME_OF_ATTEMPTS))
    if who and who != "fence":
        refusals = refusals.none()
    is_kind = {"server": IS_TRANSITION, "action": ~IS_TRANSITION}.get(kind, Q())
    by, ended_by = (Q(actor__icontains=who), Q(ended_by__icontains=who)) if who else (Q(), Q())
    there, on_servers_there, from_servers_there = within_cluster(cluster)
    sought = is_kind & by & there & visible(sees)
    of_servers = ActivitySource("transitions", "at", transitions, sought, of_one=bool(server))
    of_attempts = ActivitySource(
        "interruptions", "interrupted_at", interruptions, on_server & on_servers_there & ended_by
    )
    of_reports = ActivitySource("refusals", "at", refusals, from_server & from_servers_there)
    of_kind = {"server": of_servers, "action": of_servers, "attempt": of_attempts, "refusal": of_reports}
    some = [of_kind[kind]] if kind else [of_servers, of_attempts, of_reports]
    return some if "job" in sees else [source for source in some if source is of_servers]


def within_cluster(cluster: str) -> tuple[Q, Q, Q]:
    """Return conditions that limit events, attempts and reports to a cluster.

    Actions on the cluster as a whole are included.
    """
    if not cluster:
        return Q(), Q(), Q()
    of_servers, of_reports = (Q(Exact(Subquery(rows), cluster)) for rows in (CLUSTER, CLUSTER_OF_ATTEMPTS))
    whole = Q(subject_type=Subject.INSTANCE, subject_id=cluster)
    brake = Q(subject_type=Subject.BRAKE) & is_brake_of_cluster("subject_id", cluster)
    return of_servers | whole | brake, of_servers, of_reports
