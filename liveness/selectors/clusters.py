"""Reads clusters, and what is in force of maintenance, there or everywhere."""

import json
from datetime import datetime
from typing import Any

from django.db.models import QuerySet

from liveness import states
from liveness.models import ApiToken, Server
from liveness.sql import sql


def is_known_cluster(cluster: str) -> bool:
    """Whether a server of it is there, or was within their retention; or a token registers in it."""
    return Server.objects.filter(cluster=cluster).exists() or ApiToken.objects.filter(cluster=cluster).exists()


def present_clusters() -> list[str]:
    """Those of which servers are present."""
    present = Server.objects.exclude(state__in=states.ENDED)
    return list(present.order_by("cluster").values_list("cluster", flat=True).distinct())


def servers_within_cluster(cluster: str, servers: QuerySet[Any]) -> QuerySet[Any]:
    """Of these servers those of a cluster. Empty: of all."""
    return servers.filter(cluster=cluster) if cluster else servers


def list_maintenances() -> list[dict[str, Any]]:
    """What maintenance is in force, as the rule `maintenances` has it."""
    return parse_maintenances(sql.list_maintenances.fetch_only_row().maintenances)


def parse_maintenances(text: str | None) -> list[dict[str, Any]]:
    """What the rule `maintenances` says, with moments."""
    rows: list[dict[str, Any]] = json.loads(text or "null") or []
    for row in rows:
        row |= {name: row[name] and datetime.fromisoformat(row[name]) for name in ("since", "until")}
    return rows
