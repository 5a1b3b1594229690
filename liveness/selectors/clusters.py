"""Reads clusters, and what is in force of maintenance, there or everywhere."""

import json
from collections.abc import Collection
from datetime import datetime
from typing import Any

from django.db.models import Func, QuerySet

from liveness import states
from liveness.models import ApiToken, Brake, Server, ServerEvent
from liveness.sql import sql
from liveness.states import Subject


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


def events_of_subjects(
    subject: Subject, actions: Collection[str], cluster: str, before: int | None, limit: int
) -> list[ServerEvent]:
    """What was done to subjects of a type that are few, before an event, latest first; of one cluster, or of all."""
    events = ServerEvent.objects.filter(subject_type=subject, action__in=actions)
    if cluster:
        events = events.filter(subject_id__in=Brake.keys_of(cluster) if subject == Subject.BRAKE else [cluster])
    if before is not None:
        events = events.filter(pk__lt=before)
    # Never along the key, past the events of all servers.
    return list(events.order_by(Func("pk", template="(%(expressions)s + 0)").desc())[:limit])
