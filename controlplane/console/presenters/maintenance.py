"""Maintenance and brakes as the pages show them."""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from controlplane.console.formatting import seconds_until, time_since, time_until
from liveness.conf import conf
from liveness.states import ServerType


def present_maintenance(row: dict[str, Any], now: datetime) -> dict[str, Any]:
    """Return a maintenance with its start and end as counting times."""
    return {
        **row,
        "query": scope_query(cluster=row["cluster"]),
        "since": time_since(row["since"], now),
        "until": row["until"] and time_until(row["until"], now),
        "is_overdue": row["until"] is not None and row["until"] <= now,
    }


def present_scopes(
    maintenances: list[dict[str, Any]], by_type: Iterable[dict[str, Any]], now: datetime
) -> list[dict[str, Any]]:
    """Return the whole control plane and each cluster, with the number of workers and the maintenance, if any."""
    workers: Counter[str] = Counter()
    for row in by_type:
        workers[row["cluster"]] += row["present"] if row["type"] == ServerType.WORKER else 0
    in_force = {row["cluster"] or "": present_maintenance(row, now) for row in maintenances}
    return [
        {
            "cluster": cluster,
            "workers": workers[cluster] if cluster else workers.total(),
            "maintenance": in_force.get(cluster),
            "is_within": cluster != "" and "" in in_force,
            "query": scope_query(cluster=cluster),
        }
        for cluster in ["", *sorted({*workers, *in_force} - {""})]
    ]


def present_brake(brake: Any, now: datetime) -> dict[str, Any]:
    """Return a brake. It is annotated with `held_for`, in seconds of observed time."""
    left = conf().brake_max_hold - brake.held_for
    return {
        "it": brake,
        "since": time_since(brake.engaged_at, now),
        "left": seconds_until(left, now) if left > 0 else None,
        "query": scope_query(type=brake.type, cluster=brake.cluster, namespace=brake.namespace),
    }


def scope_query(**scope: str | None) -> str:
    """Return the scope as a query string, or an empty text."""
    chosen = {name: value for name, value in scope.items() if value}
    return f"?{urlencode(chosen)}" if chosen else ""
