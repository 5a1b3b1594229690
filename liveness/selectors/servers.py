"""Reads for the API and the pages."""

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import takewhile
from time import monotonic
from typing import Any, NamedTuple
from uuid import UUID

from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import (
    BooleanField,
    Count,
    DateTimeField,
    F,
    FloatField,
    Func,
    JSONField,
    Min,
    OuterRef,
    Prefetch,
    Q,
    QuerySet,
    Sum,
    Value,
)
from django.db.models.functions import Coalesce

from controlplane.core.model_fields import ClockTimestamp
from controlplane.core.sql_book import compose_statement
from controlplane.core.statements import SqlExpression
from liveness import states
from liveness.conf import conf
from liveness.models import (
    DEFAULT_NAMESPACE,
    OF_NAMESPACE,
    OWN_DIGEST,
    ApiToken,
    Clock,
    Heartbeat,
    Server,
    ServerEvent,
    Tally,
)
from liveness.selectors.clusters import servers_within_cluster
from liveness.sql import BUCKETS, sql
from liveness.sql.rows.selectors import ServerFacets
from liveness.states import ServerState, Subject

UNCHECKED_AFTER = 2
"""Intervals without a liveness check after which no server's silence counts: observed time has stood still by then."""

LOOK_AGAIN_AFTER = 10
"""Seconds for which a process knows which namespaces there are."""


@dataclass
class KnownNamespaces:
    names: list[str] = field(default_factory=list)
    until: float = 0.0


KNOWN = KnownNamespaces()

# In a subquery, so that a clock is read once for all rows.
SILENCE = "extract(epoch from (SELECT clock_timestamp()) - %(expressions)s)::float8"


def namespaces_of_person(user: Any) -> frozenset[str] | None:
    """Those that somebody who is signed in reaches: which his permissions, mostly his groups', name. None: all, for
    they name none. (Django reads the permissions anyway, and once.)"""
    if user.is_superuser:
        return None
    before = f"liveness.{OF_NAMESPACE}"
    named = (name.removeprefix(before) for name in user.get_all_permissions() if name.startswith(before))
    return frozenset(named) or None


def reaches_instance(namespaces: Collection[str] | None) -> bool:
    """Whether who reaches these sees, and changes, what is about the whole control plane."""
    return namespaces is None or DEFAULT_NAMESPACE in namespaces


def namespace_of_new(namespaces: Collection[str] | None) -> str:
    """Of what somebody makes who reaches these and names none."""
    return DEFAULT_NAMESPACE if namespaces is None or DEFAULT_NAMESPACE in namespaces else min(namespaces)


def rows_within(namespaces: Collection[str] | None, rows: QuerySet[Any]) -> QuerySet[Any]:
    """Of these rows those of some namespaces. None: of all."""
    return rows if namespaces is None else rows.filter(namespace__in=sorted(namespaces))


def known_namespaces(*, look: bool = True) -> list[str]:
    """Those for which there are tokens, as this process found them when it last looked, lately or not."""
    if look and monotonic() >= KNOWN.until:
        KNOWN.names = list(ApiToken.objects.order_by("namespace").values_list("namespace", flat=True).distinct())
        KNOWN.until = monotonic() + LOOK_AGAIN_AFTER
    return KNOWN.names


def servers_with_silence() -> QuerySet[Server]:
    """Servers with `silence` in seconds, whether they are `fresh`, heard in time to be given work, and whether
    `silent`, alive, and for two intervals not heard; at this read; whether they are the control plane's `own`
    processes, and whether something is wrong with them, `needs_attention`."""
    last_seen = Coalesce("last_heartbeat_at", "created_at")
    return Server.objects.annotate(
        silence=Func(last_seen, template=SILENCE, output_field=FloatField()),
        fresh=sql.build_expression("is_fresh", BooleanField(), staleness_multiplier=conf().staleness_multiplier),
        silent=sql.build_expression("is_silent", BooleanField()),
        own=sql.build_expression("is_own", BooleanField(), own_digest=OWN_DIGEST),
    ).annotate(needs_attention=sql.build_expression("needs_attention", BooleanField()))


def events_of_server(server: UUID) -> QuerySet[ServerEvent]:
    """The transitions of a server and what was done to it, oldest first."""
    return ServerEvent.objects.filter(server_id=server)


def complete_events(after: int, limit: int) -> list[ServerEvent]:
    """What happened, from the event after this one on, oldest first, in all at most `limit`; only as far as no earlier
    one can follow: who goes on behind the last misses none, however long a transaction took."""
    horizon = sql.read_events_horizon.fetch_only_row().at
    rows = ServerEvent.objects.filter(pk__gt=after).order_by("pk")[:limit]
    return list(takewhile(lambda event: event.at <= horizon, rows))


OPERATOR_EVENTS = """(
    select coalesce(jsonb_agg(jsonb_build_object(
               'action', e.action, 'actor', e.actor, 'note', e.reason,
               'at', to_char(e.at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"')) order by e.id desc), '[]')
      from (select * from liveness_serverevent
             where subject_type = '%(subject)s' and subject_id = %(expressions)s::text order by id desc limit 20) e)"""


def operator_events(subject: Subject) -> Func:
    """Of rows that are such subjects, but for servers: what operators did last to each, latest first."""
    return Func(F("pk"), template=OPERATOR_EVENTS, subject=subject.value, output_field=JSONField())


def clock_ages() -> tuple[float | None, float]:
    """Seconds since a liveness check went through last (None before the first), and since observed time last moved."""
    check_age = sql.build_expression("check_age", FloatField())
    standstill = Func("moved_at", template=SILENCE, output_field=FloatField())
    return Clock.objects.values_list(check_age, standstill).get()


def is_check_late(age: float | None) -> bool:
    """Whether no liveness check has gone through for so many seconds (None: ever) that nobody notices a lost server.

    One that lies in the future: the database's clock was set back, and no check has been since.
    """
    return age is None or abs(age) > 3 * conf().interval


def database_time() -> object:
    """The clock that all ages are told by."""
    return Clock.objects.values_list(ClockTimestamp(), flat=True).get()


def seconds_of(rule: str, since: str = "0", **params: Any) -> SqlExpression:
    """What a rule says, in seconds; None where it says infinity, which is never."""
    return SqlExpression(f"(nullif({compose_statement(sql.app, rule)}, 'infinity') - {since})", FloatField(), **params)


def seconds_until(moment: str, **params: Any) -> SqlExpression:
    """Seconds of observed time until a moment that the sweeps act on, the rule `moment`; None: never."""
    return seconds_of(moment, "(select observed_now())", **params)


class TimedServer(Server):
    """What `servers_with_timing()` knows of a server, for whoever reads it; never stored."""

    silence: float
    fresh: bool
    silent: bool
    own: bool
    now: datetime
    age: float
    since: float
    lost_in: float
    moves_in: float | None
    overdue_in: float
    braked: bool
    brake_lets_go_in: float | None
    check_age: float | None
    held: int
    live: list[Any]
    beats: list[float]
    needs_attention: bool
    grace: float | None

    class Meta:
        abstract = True


def servers_with_timing() -> QuerySet[TimedServer]:
    """Servers as `servers_with_silence()` has them, with what a reader asks next, in seconds by the database's clock:
    `age`, `since` its last change of state, `overdue_in` (to DISCONNECTED, unless it is heard), `lost_in` and
    `moves_in` (its running attempts; None: never), for how long these stay with it once it is lost, `grace` (None: for
    good), and `check_age`; whether it is `braked`, and in how many seconds the brake begins to let go,
    `brake_lets_go_in`; `now`."""
    servers: Any = servers_with_silence().annotate(
        now=ClockTimestamp(),
        age=Func("created_at", template=SILENCE, output_field=FloatField()),
        since=Func("state_changed_at", template=SILENCE, output_field=FloatField()),
        lost_in=seconds_until("lost_at"),
        moves_in=seconds_until("running_attempts_move_at"),
        grace=seconds_of("grace_of_attempts"),
        overdue_in=seconds_until("disconnected_at", initial_delay=conf().initial_delay),
        braked=sql.build_expression("is_held_by_brake", BooleanField()),
        brake_lets_go_in=seconds_until("brake_lets_go_at", brake_max_hold=conf().brake_max_hold),
        check_age=sql.build_expression("check_age", FloatField()),
    )
    return servers


def servers_with_attempts() -> QuerySet[TimedServer]:
    """Servers as the API answers them: as `servers_with_timing()` has them, with the attempts they hold, `live`."""
    attempts: Any = Server._meta.get_field("attempts").related_model
    held = attempts.objects.live().order_by("claimed_at")
    return servers_with_timing().prefetch_related(Prefetch("attempts", held, to_attr="live"))


def has_work_to_recover(server: TimedServer) -> bool:
    """Whether a server, with the attempts it holds, `live`, or their number, `held`, has something to recover."""
    return bool(server.live if hasattr(server, "live") else server.held)


class ExpectedLoss(NamedTuple):
    """What makes an alive server DISCONNECTED if it is not heard any more; and when, if that is known."""

    by: str
    """nobody: checks are switched off. check_to_come: none runs, and observed time stands still. brake, from `seconds`
    on some at each check. next_check: it is due. silence: in so many seconds."""
    seconds: float | None = None


def expected_loss(server: TimedServer) -> ExpectedLoss:
    """What is to be expected of an alive server's silence: no moment is told that nobody would keep."""
    due = server.overdue_in
    if not conf().enabled:
        return ExpectedLoss("nobody")
    if server.check_age is not None and server.check_age > UNCHECKED_AFTER * conf().interval:
        return ExpectedLoss("check_to_come")
    if due > 0:
        return ExpectedLoss("silence", due)
    if server.braked:
        return ExpectedLoss("brake", server.brake_lets_go_in)
    return ExpectedLoss("next_check", 0.0)


def next_transition(server: TimedServer) -> dict[str, Any] | None:
    """Where a server as `servers_with_timing()` has it, with what it holds, goes next by itself, when, and why.

    None: nowhere.
    """

    def transition_to(to: ServerState, seconds: float | None, reason: str) -> dict[str, Any]:
        at = None if seconds is None else server.now + timedelta(seconds=max(0, seconds))
        return {"to": to.value, "at": at, "reason": reason}

    if server.state == ServerState.INACTIVE:
        return None
    if server.state == ServerState.NOT_RUNNING:
        return transition_to(ServerState.INACTIVE, 0, "at the next liveness check")
    if server.state in states.ALIVE:
        expected = expected_loss(server)
        if expected.by in ("nobody", "brake"):
            return None
        if expected.by == "check_to_come":
            return transition_to(ServerState.DISCONNECTED, None, "once liveness checks run again")
        return transition_to(ServerState.DISCONNECTED, server.overdue_in, "unless a heartbeat arrives before")
    if server.state == ServerState.TERMINATING and server.lost_in > 0:
        return transition_to(ServerState.NOT_RUNNING, server.lost_in, "unless it ends before, or is heard")
    if not has_work_to_recover(server):
        return transition_to(ServerState.NOT_RUNNING, 0, "it holds nothing")
    if server.moves_in is None:
        return transition_to(ServerState.NOT_RUNNING, 0, "its running attempts stay with it")
    return transition_to(ServerState.NOT_RUNNING, server.moves_in, "in the check after its attempts have moved")


def server_counts_by_type(cluster: str = "") -> "QuerySet[Any, Any]":
    """For one cluster, or each, and type of server, the control plane's own (`is_own`) apart: how many have not ended,
    `present`; how many of them are alive and heard in time, `well`; how many may get work, `takes_work`; how many are
    `silent_ones`, `lost`, or `ending` otherwise than well; how many are kept from work, `cordoned` and
    `draining`."""
    well = Q(state__in=states.ALIVE, silent=False)
    may_get_work = sql.build_expression(
        "may_get_work", BooleanField(), staleness_multiplier=conf().staleness_multiplier
    )
    return (
        servers_within_cluster(cluster, servers_with_silence())
        .annotate(may_get_work=may_get_work)
        .exclude(state__in=states.ENDED)
        .values("cluster", "type", is_own=F("own"))
        .annotate(
            present=Count("pk"),
            well=Count("pk", filter=well),
            takes_work=Count("pk", filter=Q(may_get_work=True)),
            silent_ones=Count("pk", filter=Q(state__in=states.ALIVE, silent=True)),
            lost=Count("pk", filter=Q(state__in=states.LOST)),
            ending=Count("pk", filter=~Q(state__in=states.ALIVE | states.LOST)),
            cordoned=Count("pk", filter=Q(state__in=states.ALIVE, drain_deadline=None, cordoned_by__isnull=False)),
            draining=Count("pk", filter=Q(state__in=states.ALIVE, drain_deadline__isnull=False)),
        )
        .order_by("cluster", "type", "-is_own")
    )


def server_counts_by_state(cluster: str = "") -> "QuerySet[Any, Any]":
    """Of one cluster, or of all, by cluster, type and state: how many `servers` are not INACTIVE, and how many of these
    are `heard` in time."""
    servers = servers_within_cluster(cluster, servers_with_silence())
    shown = servers.exclude(state=ServerState.INACTIVE).values("cluster", "type", "state")
    counted = shown.annotate(servers=Count("pk"), heard=Count("pk", filter=Q(fresh=True)))
    return counted.order_by("cluster", "type", "state")


def silence_histogram() -> tuple[int, float, list[tuple[int, int]]]:
    """Of the alive servers: how many they are, for how many seconds together they are silent, and for each of
    `BUCKETS` how many are silent for no longer."""
    counts = {f"le_{le}": Count("pk", filter=Q(silence__lte=le)) for le in BUCKETS}
    alive = servers_with_silence().filter(state__in=states.ALIVE)
    totals = alive.aggregate(total=Count("pk"), seconds=Coalesce(Sum("silence"), 0.0), **counts)
    return totals["total"], totals["seconds"], [(le, totals[f"le_{le}"]) for le in BUCKETS]


def counter_values() -> "QuerySet[Any, tuple[str, list[str], float]]":
    """Name, labels and value of each counter."""
    return Tally.objects.values("name", "labels").annotate(value=Sum("number")).values_list("name", "labels", "value")


def rows_left_out() -> list[dict[str, Any]]:
    """The rows that could not be written within the last hour, the latest few."""
    return json.loads(sql.list_rows_left_out.fetch_only_row().rows_left_out or "[]")


def beats_of_server(server: UUID) -> QuerySet[Heartbeat, datetime]:
    """When a server was heard, latest first."""
    beats = Heartbeat.objects.filter(server_id=server, role=Heartbeat.Role.SERVER)
    return beats.order_by("-at").values_list("at", flat=True)


def servers_with_beats(servers: QuerySet[TimedServer], limit: int) -> QuerySet[TimedServer]:
    """Servers with the moments at which each was heard, in seconds since 1970, latest first, `beats`."""
    at = Func("at", template="extract(epoch from %(expressions)s)::float8", output_field=FloatField())
    own = Heartbeat.objects.filter(server_id=OuterRef("pk"), role=Heartbeat.Role.SERVER).order_by("-at")
    return servers.annotate(beats=ArraySubquery(own.values(second=at)[:limit]))


def server_facets(namespaces: Collection[str] | None = None) -> ServerFacets:
    """What alive servers of some namespaces (None: of all) can be told apart by: `versions`, how many of each cluster,
    type and version, their `tags`; and all `namespaces`."""
    return sql.list_facets.fetch_only_row(namespaces=None if namespaces is None else sorted(namespaces))


def signs_of_life(
    of: Collection[UUID], start: datetime, end: datetime, stride: float, attempts: Collection[UUID] = ()
) -> "QuerySet[Any, tuple[UUID, str, datetime]]":
    """(server, what, when) of these servers: each DISCONNECTED, and of the beats one per `stride` seconds; so too, by
    attempt, those of attempts (`own`)."""
    slot = Func(Value(timedelta(seconds=stride)), "at", Value(start), function="date_bin", output_field=DateTimeField())
    beats = (
        Heartbeat.objects.filter(server_id__in=of, role=Heartbeat.Role.SERVER, at__range=(start, end))
        .values("server_id", slot=slot)
        .annotate(what=Value("beat"), when=Min("at"))
        .values_list("server_id", "what", "when")
    )
    losses = ServerEvent.objects.filter(
        server_id__in=of, to_state=ServerState.DISCONNECTED, at__range=(start, end)
    ).order_by()
    own = (
        Heartbeat.objects.filter(~Q(role=Heartbeat.Role.SERVER), attempt_id__in=attempts, at__range=(start, end))
        .values("attempt_id", slot=slot)
        .annotate(what=Value("own"), when=Min("at"))
        .values_list("attempt_id", "what", "when")
    )
    return beats.union(losses.values_list("server_id", Value("lost"), F("at")), own, all=True).order_by("when")
