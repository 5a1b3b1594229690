"""Selectors of clusters, and of the maintenance in force."""

import json
from datetime import datetime
from typing import Any

from django.db.models import QuerySet

from liveness import states
from liveness.models import ApiToken, Server
from liveness.sql import sql


def is_known_cluster(cluster: str) -> bool:
    """Return True if a stored server or token names the cluster."""
    return Server.objects.filter(cluster=cluster).exists() or ApiToken.objects.filter(cluster=cluster).exists()


def present_clusters() -> list[str]:
    """Return the clusters with servers that have not ended."""
    present = Server.objects.exclude(state__in=states.ENDED)
    return list(present.order_by("cluster").values_list("cluster", flat=True).distinct())


def servers_within_cluster(cluster: str, servers: QuerySet[Any]) -> QuerySet[Any]:
    """Filter servers by cluster; an empty text means all clusters."""
    return servers.filter(cluster=cluster) if cluster else servers


def list_maintenances() -> list[dict[str, Any]]:
    """Return the maintenance in force, as the SQL rule `maintenances` lists it."""
    return parse_maintenances(sql.list_maintenances.fetch_only_row().maintenances)


def parse_maintenances(text: str | None) -> list[dict[str, Any]]:
    """Parse the JSON of the SQL rule `maintenances`. `since` and `until` become datetimes."""
    rows: list[dict[str, Any]] = json.loads(text or "null") or []
    for row in rows:
        row |= {name: row[name] and datetime.fromisoformat(row[name]) for name in ("since", "until")}
    return rows
