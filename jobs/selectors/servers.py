"""Selectors of servers with the attempts that they hold."""

from functools import cache
from typing import Any
from uuid import UUID

from django.db.models import DateTimeField, FloatField, IntegerField, Q, QuerySet

from controlplane.core.composed import ComposedRows, Given
from controlplane.core.statements import SqlExpression
from jobs.models import Attempt
from jobs.sql import sql
from liveness.conf import conf as liveness_conf
from liveness.models import Server
from liveness.selectors.clusters import servers_within_cluster
from liveness.selectors.servers import TimedServer, servers_with_silence, servers_with_timing
from liveness.states import ServerState


def servers_with_held_attempts() -> QuerySet[TimedServer]:
    """Return servers as in `servers_with_timing()`, with the number of attempts they hold (`held`) and their slots."""
    return servers_with_timing().annotate(
        held=sql.build_expression("held_attempts", IntegerField()),
        used_slots=sql.build_expression("used_slots", IntegerField()),
    )


INACTIVE = Q(state=ServerState.INACTIVE)


def attention_order() -> list[Any]:
    """Return the sort order: first servers that need attention, then by next change; INACTIVE last, newest first."""
    return [
        sql.build_expression("attention_rank", IntegerField()),
        sql.build_expression("next_change_at", FloatField(), initial_delay=liveness_conf().initial_delay),
        SqlExpression("case when s.state = 'INACTIVE' then s.state_changed_at end", DateTimeField()).desc(),
        "type", "name", "pk",
    ]  # fmt: skip


def servers_by_attention(cluster: str = "") -> QuerySet[Server]:
    """Return servers as in `servers_with_silence()`, of one cluster (empty: of all), in `attention_order()`.

    Only the columns that are needed to choose servers are computed.
    """
    return servers_within_cluster(cluster, servers_with_silence()).order_by(*attention_order())


def details_of_servers(chosen: "QuerySet[Any, Any] | Given") -> QuerySet[TimedServer]:
    """Return all details of the chosen servers, in `attention_order()`."""
    return servers_with_held_attempts().filter(pk__in=chosen).order_by(*attention_order())


def instance_servers(limit: int, ended: int = 20, cluster: str = "") -> QuerySet[TimedServer]:
    """Return at most `limit` present servers and the `ended` ones that ended last, in `attention_order()`."""
    last = servers_within_cluster(cluster, Server.objects.filter(INACTIVE)).order_by("-state_changed_at")
    present = servers_by_attention(cluster).filter(~INACTIVE)
    return details_of_servers(present.values("pk")[:limit].union(last.values("pk")[:ended]))


def servers_needing_attention(limit: int = 100, cluster: str = "") -> list[TimedServer]:
    """Return servers that need attention as in `servers_with_held_attempts()`, in `attention_order()`."""
    needing = servers_by_attention(cluster).filter(Q(needs_attention=True))
    return list(details_of_servers(needing.values("pk")[:limit]))


def attempts_of_server(server: UUID) -> list[Attempt]:
    """Return the attempts that a server holds, and its last ended attempts, latest first, with the fields for lists."""
    return compose_attempts().fetch(server=server)


@cache
def compose_attempts(limit: int = 50) -> ComposedRows[Attempt]:
    own = Attempt.objects.filter(server=Given("server"))
    held, last = own.live(), own.order_by("-id")[:limit]
    some = Attempt.objects.filter(pk__in=held.values("pk").union(last.values("pk")))
    return ComposedRows(some.select_related("job").only(*SHOWN_FIELDS).order_by("-id"))


SHOWN_FIELDS = (
    "number", "state", "claimed_at", "finished_at", "reason", "ended_by", "job__name", "job__action",
)  # fmt: skip
