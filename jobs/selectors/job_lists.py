"""Jobs, a page at a time, as they are sorted; and how many they are."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.db.models import Count, F, QuerySet

from jobs.models import WorkerJob
from jobs.scan_window import field_is_any_of
from jobs.selectors.attempts import last_attempt_of_job, seconds_of_job
from jobs.selectors.jobs import LAST_RESUBMISSION


def jobs_page(jobs: QuerySet[WorkerJob], before: UUID | None, limit: int, order: str = "") -> QuerySet[WorkerJob]:
    """Of these `jobs_without_content()` a page, latest first or in another order, with the last attempt of each,
    `last_attempt`, and what each was submitted again as, `resubmitted_as`."""
    if order in SORT_KEYS:
        key = SORT_KEYS[order]().desc(nulls_last=True)
        # By nothing but what that takes; the rest is read of the page alone.
        first = jobs.order_by(key, "-id").values("pk")[:limit]
        page = jobs.filter(field_is_any_of("pk", first)).order_by(key, "-id")
    else:
        oldest_first = order == "oldest"
        page = jobs.filter(**{"pk__gt" if oldest_first else "pk__lt": before}) if before else jobs
        page = page.order_by("id" if oldest_first else "-id")
    return page.annotate(last_attempt=last_attempt_of_job(), resubmitted_as=LAST_RESUBMISSION)[:limit]


SORT_KEYS: dict[str, Callable[[], Any]] = {"longest": seconds_of_job, "priority": lambda: F("priority")}
"""What jobs are sorted by where it is not their age; no index has it."""


def job_counts_by_state(jobs: QuerySet[WorkerJob]) -> dict[str, int]:
    """How many of these jobs there are in each state."""
    return dict(jobs.order_by().values_list("state").annotate(count=Count("pk")))
