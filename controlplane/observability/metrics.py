"""`/metrics`, for Prometheus. Everything is read from the database, so every web process answers alike.

Counters are kept in the table of tallies, which nothing that is past its retention is taken from.
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
from jobs.selectors import instance
from jobs.states import QUARANTINED, JobState
from liveness.api.access import RoleCall
from liveness.conf import conf
from liveness.models import Role
from liveness.selectors.counts import server_counts_by_state
from liveness.selectors.metrics import counter_values, silence_histogram
from liveness.sql import BUCKETS
from liveness.states import ServerType

COUNTERS: dict[str, tuple[list[str], str]] = {
    "transitions": (["from", "to", "actor"], "Transitions of servers."),
    "heartbeats": (["result"], "Heartbeats: accepted, or the code with which they were refused; a few seconds late."),
    "attempts": (["end"], "Attempts that ended."),
    "resubmissions": (["cause"], "Running attempts that were taken back: LOST, CRASHED, RELEASED, MOVED."),
    "late_reports": ([], "Reports that were refused and kept: the attempt was no longer its worker's."),
    "rows_left_out": (["step"], "Rows that could not be written, each time that it was tried."),
    "quarantined": ([], f"Jobs that failed with {' or '.join(QUARANTINED)}."),
}
HISTOGRAMS = {
    "detection_seconds": "Observed time from a server's last heartbeat to DISCONNECTED.",
    "recovery_seconds": "From a lost server's last heartbeat until its attempt was given away.",
}


class Metrics(RoleCall):
    """`GET /metrics`."""

    roles = {"GET": {Role.VIEWER, Role.OPERATOR}}
    is_about_instance = True

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        if not conf().metrics_public:
            super().initial(request, *args, **kwargs)

    def perform_content_negotiation(self, request: Request, force: bool = False) -> Any:
        return super().perform_content_negotiation(request, force=True)  # whatever it accepts, it gets this

    @extend_schema(exclude=True)
    def get(self, request: Request) -> HttpResponse:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(DatabaseCollector())
        return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)


class DatabaseCollector(Collector):
    """What the database says at this moment."""

    def collect(self) -> Iterator[Metric]:
        yield server_gauge()
        yield heartbeat_age_histogram()
        yield from instance_gauges()
        yield from tally_metrics()


def build_gauge(name: str, text: str, value: float | None) -> Metric:
    """A number; without a sample while there is none."""
    family = GaugeMetricFamily(f"controlplane_{name}", text)
    if value is not None:
        family.add_metric([], value)
    return family


def server_gauge() -> Metric:
    family = GaugeMetricFamily(
        "controlplane_servers", "Servers that are not INACTIVE.", labels=["cluster", "type", "state"]
    )
    for row in server_counts_by_state():
        family.add_metric([row["cluster"], row["type"], row["state"]], row["servers"])
    return family


def heartbeat_age_histogram() -> Metric:
    total, seconds, buckets = silence_histogram()
    family = GaugeHistogramMetricFamily("controlplane_heartbeat_age_seconds", "Silence of the alive servers, now.")
    family.add_metric([], [(floatToGoString(le), count) for le, count in buckets] + [("+Inf", total)], seconds)
    return family


def instance_gauges() -> Iterator[Metric]:
    figures = instance.instance_figures()
    jobs = GaugeMetricFamily(
        "controlplane_jobs",
        f"Jobs. Of those that ended, more than {instance.COUNT_LIMIT} of a state are an estimate.",
        labels=["state"],
    )
    for state in JobState:
        jobs.add_metric([state], figures["counts"].get(state, 0))
    yield jobs
    flagged = GaugeMetricFamily(
        "controlplane_flagged_jobs",
        f"Jobs that stand still until somebody sees to them; of one set of tags at most {instance.COUNT_LIMIT}.",
        labels=["flag"],
    )
    for flag, count in figures["flags"].items():
        flagged.add_metric([flag], count)
    yield flagged
    yield build_gauge(
        "oldest_pending_seconds", "For how long the oldest waiting job could be had.", figures["waiting"] or 0
    )
    yield build_gauge("observed_clock_lag_seconds", "Since observed time last moved.", figures["observed_lag"])
    yield build_gauge("check_duration_seconds", "Of the last liveness check that went through.", figures["took"])
    yield build_gauge("check_last_success_timestamp_seconds", "When it went through.", figures["finished"])
    engaged = {brake["type"] for brake in figures["brakes"] or []}
    brakes = GaugeMetricFamily(
        "controlplane_brake_engaged", "1: it holds servers of the type, everywhere or in a cluster.", labels=["type"]
    )
    for type in ServerType:
        brakes.add_metric([type], int(type in engaged))
    yield brakes


def tally_metrics() -> Iterator[Metric]:
    by_name: dict[str, list[tuple[list[str], float]]] = defaultdict(list)
    for name, labels, number in counter_values():
        by_name[name].append((labels, number))
    for name, (labels, text) in COUNTERS.items():
        counter = CounterMetricFamily(f"controlplane_{name}", text, labels=labels)
        for values, number in by_name[name] or ([] if labels else [([], 0)]):
            counter.add_metric(values, number)
        yield counter
    for name, text in HISTOGRAMS.items():
        histogram = HistogramMetricFamily(f"controlplane_{name}", text)
        total = sum(number for _, number in by_name[f"{name}_sum"])
        histogram.add_metric([], list(cumulative_buckets(by_name[name])), total)
        yield histogram


def cumulative_buckets(counts: Iterable[tuple[list[str], float]]) -> Iterator[tuple[str, float]]:
    """Buckets as Prometheus has them: each with all that are less."""
    by_bound = {le: number for (le,), number in counts}
    below = 0.0
    for le in [*BUCKETS, "+Inf"]:
        below += by_bound.get(f"{le}", 0)
        yield floatToGoString(le), below
