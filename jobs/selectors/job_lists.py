"""Reads pages of sorted jobs, and counts jobs."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any
from uuid import UUID

from django.db.models import Count, F, QuerySet

from controlplane.core.composed import ComposedRows, Given
from controlplane.core.model_fields import ClockTimestamp
from jobs.models import WorkerJob
from jobs.scan_window import field_is_any_of
from jobs.selectors.attempts import last_attempt_of_job, seconds_of_job
from jobs.selectors.jobs import LAST_RESUBMISSION
from liveness.conf import LivenessSettings, conf


def jobs_page(jobs: QuerySet[WorkerJob], before: UUID | None, limit: int, order: str = "") -> list[WorkerJob]:
    """Return a page of these jobs for lists, latest first or in another order.

    Each has its `last_attempt`, the job it was `resubmitted_as`, and `now`.
    """
    if before and order not in SORT_KEYS:
        jobs = jobs.filter(**{"pk__gt" if order == "oldest" else "pk__lt": before})
    # The inner query sorts only ids. The other columns are read for the page alone.
    return compose_page(order, conf()).fetch(page=jobs.order_by(*sort_keys(order)).values("pk")[:limit])


@lru_cache(maxsize=64)
def compose_page(order: str, settings: LivenessSettings) -> ComposedRows[WorkerJob]:
    jobs = WorkerJob.objects.only(*SHOWN_FIELDS).annotate(
        now=ClockTimestamp(), last_attempt=last_attempt_of_job(), resubmitted_as=LAST_RESUBMISSION
    )
    return ComposedRows(jobs.filter(field_is_any_of("pk", Given("page"))).order_by(*sort_keys(order)))


SHOWN_FIELDS = (
    "namespace", "state", "kind", "name", "action", "priority", "required_tags", "created_at", "finished_at", "error",
    "attempt_count", "resubmissions", "resubmission_of",
    "available_at", "cancel_requested_at", "wait", "parked_by",
)  # fmt: skip


def sort_keys(order: str) -> list[Any]:
    if order in SORT_KEYS:
        return [SORT_KEYS[order]().desc(nulls_last=True), "-id"]
    return ["id" if order == "oldest" else "-id"]


SORT_KEYS: dict[str, Callable[[], Any]] = {"longest": seconds_of_job, "priority": lambda: F("priority")}
"""Sort keys of orders other than by age. They have no index."""


def job_counts_by_state(jobs: QuerySet[WorkerJob]) -> dict[str, int]:
    """Return the number of these jobs by state."""
    return dict(jobs.order_by().values_list("state").annotate(count=Count("pk")))
