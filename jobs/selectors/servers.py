"""Reads servers with what they hold."""

from typing import Any
from uuid import UUID

from django.db.models import DateTimeField, FloatField, IntegerField, Q, QuerySet

from controlplane.core.statements import SqlExpression
from jobs.models import Attempt
from jobs.sql import sql
from liveness.conf import conf as liveness_conf
from liveness.models import Server
from liveness.selectors.clusters import servers_within_cluster
from liveness.selectors.servers import TimedServer, servers_with_silence, servers_with_timing
from liveness.states import ServerState


def servers_with_held_attempts() -> QuerySet[TimedServer]:
    """Servers as `servers_with_timing()` has them, with the number of attempts they hold, `held`."""
    return servers_with_timing().annotate(held=sql.build_expression("held_attempts", IntegerField()))


INACTIVE = Q(state=ServerState.INACTIVE)


def attention_order() -> list[Any]:
    """Those that need attention first, what gets worse next before the rest; at the end the INACTIVE, latest first."""
    return [
        sql.build_expression("attention_rank", IntegerField()),
        sql.build_expression("next_change_at", FloatField(), initial_delay=liveness_conf().initial_delay),
        SqlExpression("case when s.state = 'INACTIVE' then s.state_changed_at end", DateTimeField()).desc(),
        "type", "name", "pk",
    ]  # fmt: skip


def servers_by_attention(cluster: str = "") -> QuerySet[Server]:
    """Servers, of one cluster or of all, as `servers_with_silence()` has them, in `attention_order()`: what it
    takes to choose some."""
    return servers_within_cluster(cluster, servers_with_silence()).order_by(*attention_order())


def details_of_servers(*servers: QuerySet[Server]) -> QuerySet[TimedServer]:
    """Of these servers, in `attention_order()`, all that is to be known."""
    first, *others = (some.values("pk") for some in servers)
    chosen = first.union(*others) if others else first
    return servers_with_held_attempts().filter(pk__in=chosen).order_by(*attention_order())


def instance_servers(limit: int, ended: int = 20, cluster: str = "") -> QuerySet[TimedServer]:
    """Servers that are present, at most `limit`, and those that ended last, of one cluster or of all, in
    `attention_order()`."""
    last = servers_within_cluster(cluster, Server.objects.filter(INACTIVE)).order_by("-state_changed_at")
    return details_of_servers(servers_by_attention(cluster).filter(~INACTIVE)[:limit], last[:ended])


def servers_needing_attention(limit: int = 100, cluster: str = "") -> list[TimedServer]:
    """Servers as `servers_with_held_attempts()` has them that need attention, of one cluster or of all, in
    `attention_order()`."""
    return list(details_of_servers(servers_by_attention(cluster).filter(Q(needs_attention=True))[:limit]))


def attempts_of_server(server: UUID, limit: int = 50) -> QuerySet[Attempt]:
    """What a server holds, and its last attempts; latest first."""
    own = Attempt.objects.filter(server=server)
    held, last = own.live(), own.order_by("-id")[:limit]
    some = Attempt.objects.filter(pk__in=held.values("pk").union(last.values("pk")))
    return some.select_related("job").defer("job__payload", "job__output", "job__checkpoint").order_by("-id")
