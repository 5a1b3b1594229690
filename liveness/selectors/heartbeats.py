"""Heartbeats of servers and of the code of attempts."""

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import DateTimeField, F, FloatField, Func, Min, OuterRef, Q, QuerySet, Value

from liveness.models import Heartbeat, ServerEvent
from liveness.selectors.servers import TimedServer
from liveness.states import ServerState


def beats_of_server(server: UUID) -> QuerySet[Heartbeat, datetime]:
    """When the heartbeats of a server arrived, latest first."""
    beats = Heartbeat.objects.filter(server_id=server, role=Heartbeat.Role.SERVER)
    return beats.order_by("-at").values_list("at", flat=True)


def servers_with_beats(servers: QuerySet[TimedServer], limit: int) -> QuerySet[TimedServer]:
    """Servers with the moments of the heartbeats of each, in seconds since 1970, latest first, `beats`."""
    at = Func("at", template="extract(epoch from %(expressions)s)::float8", output_field=FloatField())
    own = Heartbeat.objects.filter(server_id=OuterRef("pk"), role=Heartbeat.Role.SERVER).order_by("-at")
    return servers.annotate(beats=ArraySubquery(own.values(second=at)[:limit]))


def signs_of_life(
    of: Collection[UUID], start: datetime, end: datetime, stride: float, attempts: Collection[UUID] = ()
) -> "QuerySet[Any, tuple[UUID, str, datetime]]":
    """(server, what, when) of these servers: each DISCONNECTED, and of the beats one per `stride` seconds; so too, by
    attempt, those of attempts (`own`)."""
    slot = Func(Value(timedelta(seconds=stride)), "at", Value(start), function="date_bin", output_field=DateTimeField())

    def one_per_slot(key: str, what: str, beats: QuerySet[Heartbeat]) -> "QuerySet[Any, Any]":
        slots = beats.filter(at__range=(start, end)).values(key, slot=slot)
        return slots.annotate(what=Value(what), when=Min("at")).values_list(key, "what", "when")

    beats = Heartbeat.objects.filter(server_id__in=of, role=Heartbeat.Role.SERVER)
    own = Heartbeat.objects.filter(~Q(role=Heartbeat.Role.SERVER), attempt_id__in=attempts)
    losses = ServerEvent.objects.filter(
        server_id__in=of, to_state=ServerState.DISCONNECTED, at__range=(start, end)
    ).order_by()
    return (
        one_per_slot("server_id", "beat", beats)
        .union(
            losses.values_list("server_id", Value("lost"), F("at")),
            one_per_slot("attempt_id", "own", own),
            all=True,
        )
        .order_by("when")
    )
