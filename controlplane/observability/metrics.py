"""Metrics at `/metrics`, for Prometheus. All values come from the database, so every web process returns the same.

Counters are in the table of tallies, from which retention deletes nothing.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from django.http import HttpResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeHistogramMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString
from rest_framework.request import Request

from controlplane.core.calls import extend_schema
from controlplane.observability.queue_metrics import hold_gauges, queue_gauges
from jobs.selectors import instance
from jobs.selectors.stored import OWNERS_SHOWN, owners_by_stored_bytes
from jobs.states import QUARANTINED, JobState
from liveness.api.access import RoleCall
from liveness.conf import conf
from liveness.models import Role
from liveness.selectors.metrics import (
    DEFAULT_ROWS_LIMIT,
    counter_values,
    default_partition_rows,
    servers_by_labels,
    silence_histogram,
)
from liveness.sql import BUCKETS
from liveness.states import ServerType

COUNTERS: dict[str, tuple[list[str], str]] = {
    "transitions": (["from", "to", "actor"], "State transitions of servers."),
    "heartbeats": (["result"], "Heartbeats: accepted, or the error code if refused. Updated every few seconds."),
    "attempts": (["end"], "Attempts that ended."),
    "resubmissions": (
        ["cause"],
        "Running attempts that were ended to run the job again: LOST, CRASHED, RELEASED, MOVED.",
    ),
    "late_reports": ([], "Superseded reports: refused and kept, because the worker no longer had the attempt."),
    "rows_left_out": (["step"], "Rows that could not be written, counted at each try."),
    "limit_repairs": (
        ["what"],
        "Slots and jobs that only the sweep freed. 0 in a healthy system.",
    ),
    "quarantined": ([], f"Jobs that failed with {' or '.join(QUARANTINED)}."),
}
HISTOGRAMS: dict[str, tuple[list[str], str]] = {
    "detection_seconds": ([], "Observed time from a server's last heartbeat to DISCONNECTED."),
    "recovery_seconds": (["cause"], "Time from a lost server's last heartbeat until its attempt was recovered."),
}


class Metrics(RoleCall):
    """View of `GET /metrics`."""

    roles = {"GET": {Role.VIEWER, Role.OPERATOR}}
    is_about_instance = True

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        if not conf().metrics_public:
            super().initial(request, *args, **kwargs)

    def perform_content_negotiation(self, request: Request, force: bool = False) -> Any:
        return super().perform_content_negotiation(request, force=True)  # the format is the same for any Accept header

    @extend_schema(exclude=True)
    def get(self, request: Request) -> HttpResponse:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(DatabaseCollector())
        return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)


class DatabaseCollector(Collector):
    """Collector that reads all values from the database."""

    def collect(self) -> Iterator[Metric]:
        yield server_gauge()
        yield heartbeat_age_histogram()
        yield from instance_gauges()
        yield from queue_gauges()
        yield from hold_gauges()
        yield stored_bytes_gauge()
        yield default_partition_gauge()
        yield from tally_metrics()


def build_gauge(name: str, text: str, value: float | None) -> Metric:
    """Return a gauge. If `value` is None, the gauge has no sample."""
    family = GaugeMetricFamily(f"controlplane_{name}", text)
    if value is not None:
        family.add_metric([], value)
    return family


def server_gauge() -> Metric:
    family = GaugeMetricFamily(
        "controlplane_servers", "Servers that are not INACTIVE.", labels=["cluster", "type", "state"]
    )
    for labels, servers in servers_by_labels().items():
        family.add_metric(labels, servers)
    return family


def heartbeat_age_histogram() -> Metric:
    total, seconds, buckets = silence_histogram()
    family = GaugeHistogramMetricFamily(
        "controlplane_heartbeat_age_seconds", "Seconds since the last heartbeat of each alive server."
    )
    family.add_metric([], [(floatToGoString(le), count) for le, count in buckets] + [("+Inf", total)], seconds)
    return family


def instance_gauges() -> Iterator[Metric]:
    figures = instance.instance_figures()
    jobs = GaugeMetricFamily(
        "controlplane_jobs",
        f"Jobs by state. Above {instance.COUNT_LIMIT} ended jobs of a state the number is an estimate.",
        labels=["state"],
    )
    for state in JobState:
        jobs.add_metric([state], figures["counts"].get(state, 0))
    yield jobs
    flagged = GaugeMetricFamily(
        "controlplane_flagged_jobs",
        f"Jobs that wait for an operator; at most {instance.COUNT_LIMIT} per set of tags.",
        labels=["flag"],
    )
    for flag, count in figures["flags"].items():
        flagged.add_metric([flag], count)
    yield flagged
    yield build_gauge(
        "oldest_pending_seconds",
        "Seconds that the oldest waiting job has waited since it last became PENDING.",
        figures["waiting"] or 0,
    )
    yield build_gauge(
        "oldest_snapshot_seconds",
        "Age of the oldest snapshot that keeps dead rows of the database.",
        (figures["oldest_snapshot"] or {"seconds": 0})["seconds"],
    )
    yield build_gauge("observed_clock_lag_seconds", "Seconds since observed time last moved.", figures["observed_lag"])
    yield build_gauge("check_duration_seconds", "Duration of the last completed liveness check.", figures["took"])
    yield build_gauge(
        "check_last_success_timestamp_seconds", "Time of the last completed liveness check.", figures["finished"]
    )
    engaged = {brake["type"] for brake in figures["brakes"] or []}
    brakes = GaugeMetricFamily(
        "controlplane_brake_engaged",
        "1 if the brake holds servers of the type, everywhere or in a cluster.",
        labels=["type"],
    )
    for type in ServerType:
        brakes.add_metric([type], int(type in engaged))
    yield brakes


def stored_bytes_gauge() -> Metric:
    """Return the stored bytes of the tokens that use most.

    So the number of series is limited, however many tokens exist.
    """
    family = GaugeMetricFamily(
        "controlplane_stored_bytes",
        f"Bytes of a token's jobs, for the {OWNERS_SHOWN} largest tokens; only with a STORED_BYTES_LIMIT.",
        labels=["token", "name"],
    )
    for row in owners_by_stored_bytes():
        family.add_metric([str(row.id), row.name], row.bytes)
    return family


def default_partition_gauge() -> Metric:
    family = GaugeMetricFamily(
        "controlplane_default_partition_rows",
        f"Rows without a partition of their day. Counting stops at {DEFAULT_ROWS_LIMIT}.",
        labels=["table"],
    )
    for table, rows in default_partition_rows().items():
        family.add_metric([table], rows)
    return family


def tally_metrics() -> Iterator[Metric]:
    by_name: dict[str, list[tuple[list[str], float]]] = defaultdict(list)
    for name, labels, number in counter_values():
        by_name[name].append((labels, number))
    for name, (labels, text) in COUNTERS.items():
        counter = CounterMetricFamily(f"controlplane_{name}", text, labels=labels)
        for values, number in by_name[name] or ([] if labels else [([], 0)]):
            counter.add_metric(values, number)
        yield counter
    for name, (labels, text) in HISTOGRAMS.items():
        yield tally_histogram(name, labels, text, by_name[name], by_name[f"{name}_sum"])


Counted = list[tuple[list[str], float]]
"""Numbers with the values of their labels."""


def tally_histogram(name: str, labels: list[str], text: str, buckets: Counted, sums: Counted) -> Metric:
    """Return a histogram. The labels of `buckets` end with the upper bound; the labels of `sums` do not."""
    histogram = HistogramMetricFamily(f"controlplane_{name}", text, labels=labels)
    totals = {tuple(values): number for values, number in sums} or ({} if labels else {(): 0.0})
    for values, total in sorted(totals.items()):
        own = [([le], number) for (*others, le), number in buckets if tuple(others) == values]
        histogram.add_metric(values, list(cumulative_buckets(own)), total)
    return histogram


def cumulative_buckets(counts: Iterable[tuple[list[str], float]]) -> Iterator[tuple[str, float]]:
    """Yield cumulative buckets, as Prometheus expects them."""
    by_bound = {le: number for (le,), number in counts}
    below = 0.0
    for le in [*BUCKETS, "+Inf"]:
        below += by_bound.get(f"{le}", 0)
        yield floatToGoString(le), below
