"""Selectors of server counts by type and by state, and of the values that servers can be filtered by."""

from collections.abc import Collection
from functools import lru_cache
from typing import Any

from django.db.models import BooleanField, Count, F, Q, QuerySet

from controlplane.core.composed import Composed, compose_query
from liveness import states
from liveness.conf import LivenessSettings, conf
from liveness.selectors.clusters import servers_within_cluster
from liveness.selectors.servers import servers_with_silence
from liveness.sql import sql
from liveness.sql.rows.selectors import ServerFacets
from liveness.states import ServerState


def server_counts_by_type(cluster: str = "") -> list[dict[str, Any]]:
    """Count the servers that have not ended by cluster, type and `is_own` (processes of the control plane itself).

    - `present`: all of them.
    - `well`: alive and not silent, with at least one heartbeat.
    - `unheard`: alive and not silent, before the first heartbeat.
    - `takes_work`: may get work. `cordoned` and `draining`: get no new work.
    - `silent_ones`: alive and silent. `lost`: DISCONNECTED or ERROR. `ending`: in another state on the way to INACTIVE.
    """
    return compose_counts_by_type(cluster, conf()).fetch_dicts()


@lru_cache(maxsize=64)
def compose_counts_by_type(cluster: str, settings: LivenessSettings) -> Composed:
    return compose_query(counts_by_type(cluster, settings))


def counts_by_type(cluster: str, settings: LivenessSettings) -> "QuerySet[Any, Any]":
    """Return the query of `server_counts_by_type()`."""
    in_time = Q(state__in=states.ALIVE, silent=False)
    may_get_work = sql.build_expression(
        "may_get_work", BooleanField(), staleness_multiplier=settings.staleness_multiplier
    )
    counted: QuerySet[Any, Any] = (
        servers_within_cluster(cluster, servers_with_silence())
        .annotate(may_get_work=may_get_work)
        .exclude(state__in=states.ENDED)
        .values("cluster", "type", is_own=F("own"))
        .annotate(
            present=Count("pk"),
            well=Count("pk", filter=in_time & Q(last_heartbeat_at__isnull=False)),
            unheard=Count("pk", filter=in_time & Q(last_heartbeat_at__isnull=True)),
            takes_work=Count("pk", filter=Q(may_get_work=True)),
            silent_ones=Count("pk", filter=Q(state__in=states.ALIVE, silent=True)),
            lost=Count("pk", filter=Q(state__in=states.LOST)),
            ending=Count("pk", filter=~Q(state__in=states.ALIVE | states.LOST)),
            cordoned=Count("pk", filter=Q(state__in=states.ALIVE, drain_deadline=None, cordoned_by__isnull=False)),
            draining=Count("pk", filter=Q(state__in=states.ALIVE, drain_deadline__isnull=False)),
        )
        .order_by("cluster", "type", "-is_own")
    )
    return counted


def server_counts_by_state(cluster: str = "") -> "QuerySet[Any, Any]":
    """Count the `servers` that are not INACTIVE by cluster, type and state, and how many of them are fresh (`heard`).

    An empty `cluster` means all clusters.
    """
    servers = servers_within_cluster(cluster, servers_with_silence())
    counted: QuerySet[Any, Any] = servers.exclude(state=ServerState.INACTIVE).values("cluster", "type", "state")
    counted = counted.annotate(servers=Count("pk"), heard=Count("pk", filter=Q(fresh=True)))
    return counted.order_by("cluster", "type", "state")


def server_facets(namespaces: Collection[str] | None = None) -> ServerFacets:
    """Return the values that alive servers can be filtered by. `namespaces` limits them; None means all.

    `versions` counts the servers by cluster, type and version. `tags` are their tags. `namespaces` are all namespaces
    with tokens.
    """
    return sql.list_facets.fetch_only_row(namespaces=None if namespaces is None else sorted(namespaces))
