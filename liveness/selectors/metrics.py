"""Selectors of the values that `/metrics` shows."""

from datetime import datetime
from typing import Any

from django.db.models import Count, Min, Q, QuerySet, Sum
from django.db.models.functions import Coalesce

from liveness import states
from liveness.models import Server, Tally
from liveness.selectors.servers import servers_with_silence
from liveness.sql import BUCKETS, sql

CLUSTERS_NAMED = 100
"""Largest number of clusters with time series of their own."""
OTHER_CLUSTERS = "other"
DEFAULT_ROWS_LIMIT = 100_000
"""Largest number of rows that are counted in a default partition."""


def servers_by_labels() -> dict[tuple[str, str, str], int]:
    """Count the servers that are not INACTIVE by cluster, type and state.

    Servers may name any number of clusters. Only the oldest `CLUSTERS_NAMED` have their own counts, so that new ones
    do not replace them. The rest is counted together as `OTHER_CLUSTERS`.
    """
    rows = list(
        Server.objects.values("cluster", "type", "state").annotate(servers=Count("pk"), since=Min("created_at"))
    )
    since: dict[str, datetime] = {}
    for row in rows:
        since[row["cluster"]] = min(row["since"], since.get(row["cluster"], row["since"]))
    named = sorted(since, key=lambda cluster: (since[cluster], cluster))[:CLUSTERS_NAMED]
    counts: dict[tuple[str, str, str], int] = {}
    for row in rows:
        if row["state"] != states.ServerState.INACTIVE:
            labels = (row["cluster"] if row["cluster"] in named else OTHER_CLUSTERS, row["type"], row["state"])
            counts[labels] = counts.get(labels, 0) + row["servers"]
    return counts


def silence_histogram() -> tuple[int, float, list[tuple[int, int]]]:
    """Return a histogram of the silence of alive servers: their number, the sum of seconds, and (bucket, count) pairs.

    A bucket is a number of seconds. Its count is the number of servers that have been silent for at most so long.
    """
    counts = {f"le_{le}": Count("pk", filter=Q(silence__lte=le)) for le in BUCKETS}
    alive = servers_with_silence().filter(state__in=states.ALIVE)
    totals = alive.aggregate(total=Count("pk"), seconds=Coalesce(Sum("silence"), 0.0), **counts)
    return totals["total"], totals["seconds"], [(le, totals[f"le_{le}"]) for le in BUCKETS]


def counter_values() -> "QuerySet[Any, tuple[str, list[str], float]]":
    """Return name, labels and value of each counter."""
    return Tally.objects.values("name", "labels").annotate(value=Sum("number")).values_list("name", "labels", "value")


def default_partition_rows() -> dict[str, int]:
    """Return for each partitioned table how many rows its default partition has, at most DEFAULT_ROWS_LIMIT."""
    return {row.parent: row.rows for row in sql.count_default_rows.fetch_rows(most=DEFAULT_ROWS_LIMIT)}
