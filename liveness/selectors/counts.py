"""How many servers there are: by type, by state, and by what they can be told apart by."""

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
    """For one cluster, or each, and type of server, the control plane's own (`is_own`) apart: how many have not ended,
    `present`; how many of them are alive and not silent, `well`; how many may get work, `takes_work`; how many are
    `silent_ones`, `lost`, or `ending` otherwise than well; how many are kept from work, `cordoned` and
    `draining`."""
    return compose_counts_by_type(cluster, conf()).fetch_dicts()


@lru_cache(maxsize=64)
def compose_counts_by_type(cluster: str, settings: LivenessSettings) -> Composed:
    well = Q(state__in=states.ALIVE, silent=False)
    may_get_work = sql.build_expression(
        "may_get_work", BooleanField(), staleness_multiplier=settings.staleness_multiplier
    )
    return compose_query(
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


def server_facets(namespaces: Collection[str] | None = None) -> ServerFacets:
    """What alive servers of some namespaces (None: of all) can be told apart by: `versions`, how many of each cluster,
    type and version, their `tags`; and all `namespaces`."""
    return sql.list_facets.fetch_only_row(namespaces=None if namespaces is None else sorted(namespaces))
