"""What only the metrics ask."""

from typing import Any

from django.db.models import Count, Q, QuerySet, Sum
from django.db.models.functions import Coalesce

from liveness import states
from liveness.models import Tally
from liveness.selectors.servers import servers_with_silence
from liveness.sql import BUCKETS


def silence_histogram() -> tuple[int, float, list[tuple[int, int]]]:
    """Of the alive servers: how many they are, for how many seconds together they are silent, and for each of
    `BUCKETS` how many are silent for no longer."""
    counts = {f"le_{le}": Count("pk", filter=Q(silence__lte=le)) for le in BUCKETS}
    alive = servers_with_silence().filter(state__in=states.ALIVE)
    totals = alive.aggregate(total=Count("pk"), seconds=Coalesce(Sum("silence"), 0.0), **counts)
    return totals["total"], totals["seconds"], [(le, totals[f"le_{le}"]) for le in BUCKETS]


def counter_values() -> "QuerySet[Any, tuple[str, list[str], float]]":
    """Name, labels and value of each counter."""
    return Tally.objects.values("name", "labels").annotate(value=Sum("number")).values_list("name", "labels", "value")
