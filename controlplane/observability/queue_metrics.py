"""Metrics of queues and holds."""

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from jobs.choices import HoldOf
from jobs.selectors.holds import hold_ages
from jobs.selectors.queues import QUEUES_NAMED, largest_queues


def queue_gauges() -> Iterator[Metric]:
    """Return the jobs of the queues with most jobs, and all parked jobs.

    This limits the number of series, however many tags exist.
    """
    family = GaugeMetricFamily(
        "controlplane_queue_jobs",
        f"Jobs by namespace and required tags, for the {QUEUES_NAMED} largest queues; the others together as `other`.",
        labels=["namespace", "tags", "state"],
    )
    rows = largest_queues()
    for row in rows:
        for state, jobs in (("waiting", row.waiting), ("parked", row.parked), ("running", row.running)):
            family.add_metric([row.namespace, row.tags, state], jobs)
    yield family
    parked = GaugeMetricFamily(
        "controlplane_parked_jobs", "Jobs that wait for another reason than workers.", labels=["by"]
    )
    parked.add_metric(["limit"], sum(row.parked - row.on_hold - row.in_loops for row in rows))
    parked.add_metric(["hold"], sum(row.on_hold for row in rows))
    parked.add_metric(["max_parallel"], sum(row.in_loops for row in rows))
    yield parked


def hold_gauges() -> Iterator[Metric]:
    """Return the number of holds by what they hold, and the age of the oldest."""
    ages = hold_ages()
    family = GaugeMetricFamily("controlplane_holds", "Holds in force, by what they hold.", labels=["of"])
    for kind in HoldOf:
        family.add_metric([kind], sum(of == kind for of, _ in ages))
    yield family
    oldest = GaugeMetricFamily("controlplane_oldest_hold_seconds", "Age of the oldest hold in force; 0: no hold.")
    oldest.add_metric([], max((age for _, age in ages), default=0.0))
    yield oldest
