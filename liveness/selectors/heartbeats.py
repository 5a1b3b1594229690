"""Selectors of the heartbeats of servers and attempts, and of outages of the control plane."""

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import DateTimeField, F, FloatField, Func, Min, OuterRef, QuerySet, Value

from controlplane.core.statements import Row, Statement, fetch_result_sets
from liveness.models import OWN_DIGEST, AttemptHeartbeat, Heartbeat, ServerEvent
from liveness.selectors.servers import TimedServer
from liveness.sql import sql
from liveness.sql.rows.selectors import OwnOutage
from liveness.states import ServerState


def servers_with_beats(servers: QuerySet[TimedServer], limit: int) -> QuerySet[TimedServer]:
    """Add `beats` to servers: the times of their last heartbeats in seconds since 1970, latest first."""
    at = Func("at", template="extract(epoch from %(expressions)s)::float8", output_field=FloatField())
    own = Heartbeat.objects.filter(server_id=OuterRef("pk")).order_by("-at")
    annotated: QuerySet[TimedServer] = servers.annotate(beats=ArraySubquery(own.values(second=at)[:limit]))
    return annotated


def signs_of_life(
    of: Collection[UUID], start: datetime, end: datetime, stride: float, attempts: Collection[UUID] = ()
) -> "QuerySet[Any, tuple[UUID, str, datetime]]":
    """Return (id, kind, time) of heartbeats and losses between two times, in the order of time.

    - `beat`: heartbeats of the servers `of`, at most one in each period of `stride` seconds.
    - `lost`: times at which these servers became DISCONNECTED.
    - `own`: heartbeats of the `attempts`, at most one in each such period. The id is the id of the attempt.
    """
    slot = Func(Value(timedelta(seconds=stride)), "at", Value(start), function="date_bin", output_field=DateTimeField())

    def one_per_slot(key: str, what: str, beats: QuerySet[Any]) -> "QuerySet[Any, Any]":
        slots: QuerySet[Any, Any] = beats.filter(at__range=(start, end)).values(key, slot=slot)
        slots = slots.annotate(what=Value(what), when=Min("at")).values_list(key, "what", "when")
        return slots

    beats = Heartbeat.objects.filter(server_id__in=of)
    own = AttemptHeartbeat.objects.filter(attempt_id__in=attempts)
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


def beats_with_outages(
    server: UUID, shown: int, interval: float, least: float, beside: Statement[Row], **params: object
) -> tuple[list[datetime], list[OwnOutage], list[Row]]:
    """Return the times of a server's last heartbeats, latest first, and the control plane's outages in that period.

    `interval` is the server's heartbeat interval; outages shorter than `least` are left out (both in seconds). Also
    return the rows of a statement `beside`, with its other parameters, in the same round trip.
    """
    rows, others = fetch_result_sets(
        sql.list_beats_with_outages, beside,
        own_digest=OWN_DIGEST, server=server, shown=shown, usual=2 * interval, least=least, **params,
    )  # fmt: skip
    beats = [row.began for row in rows if row.ended is None]
    return beats, [OwnOutage(row.began, row.ended) for row in reversed(rows) if row.ended is not None], others


MARGIN = timedelta(seconds=30)
LONGEST_LOOK = timedelta(hours=6)


def own_outages(start: datetime, end: datetime, least: float) -> list[OwnOutage]:
    """Return the control plane's own outages longer than `least` seconds, within the last 6 hours of a period."""
    since = max(start, end - LONGEST_LOOK) - MARGIN
    return sql.list_own_outages.fetch_rows(own_digest=OWN_DIGEST, since=since, until=end + MARGIN, least=least)
