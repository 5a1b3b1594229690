"""Query parameters of lists of jobs."""

from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from controlplane.core.paging import PageFilter
from controlplane.core.rest import (
    ChoiceField,
    TextField,
)
from jobs import scan_window
from jobs.models import WorkerJob
from jobs.selectors.job_search import jobs_with_text
from jobs.selectors.jobs import flagged_job_ids, jobs_with_flags
from jobs.states import (
    Flag,
    JobKind,
    JobState,
)


class JobFilter(PageFilter):
    """Filter of jobs, and page."""

    state = ChoiceField(JobState.choices(), required=False)
    kind = ChoiceField(JobKind.choices(), required=False)
    key = TextField(required=False)
    tag = TextField(
        required=False, max_length=100, help_text="Tag that a worker must have, including those of the action."
    )

    flag = ChoiceField(Flag.choices(), required=False, help_text="Jobs with this flag.")
    q = TextField(
        required=False, max_length=200,
        help_text="Text in the name, the action or the error, the key, or the beginning or last digits of the id.",
    )  # fmt: skip

    def match_rows(self, rows: QuerySet[WorkerJob]) -> QuerySet[WorkerJob]:
        filters = self.validated_data
        if "flag" in filters:
            rows = rows.filter(pk__in=flagged_job_ids(filters["flag"], scan_window.SCAN_LIMIT))
        rows = rows.filter(**{field: filters[field] for field in ("state", "kind") if field in filters})
        if "key" in filters:
            rows = rows.filter(scan_window.has_key_condition(filters["key"]))
        if "q" in filters:
            rows = jobs_with_text(rows, filters["q"])
        return rows.filter(required_tags__contains=[filters["tag"]]) if "tag" in filters else rows

    def page(self, rows: QuerySet[WorkerJob], floor: UUID | None = None) -> dict[str, Any]:
        """Return a page. Filters without an index search only SCAN_LIMIT rows."""
        filters = self.validated_data
        if "flag" in filters:
            rows = rows.filter(pk__in=flagged_job_ids(filters["flag"], scan_window.SCAN_LIMIT))
        jobs, state = scan_window.filter_by_kind(rows, filters.get("kind")), filters.get("state")
        if "key" in filters:
            jobs = jobs.filter(scan_window.has_key_condition(filters["key"]))
        if filters.keys() & {"tag", "q"} or filters.get("kind") in (JobKind.TASK, JobKind.CELERY):
            jobs, floor = scan_window.next_scan_window(jobs, filters.get("cursor"), state)
        elif state:
            jobs = jobs.filter(state=state)
        if "kind" in filters:
            jobs = jobs.filter(kind=filters["kind"])
        if "tag" in filters:
            jobs = jobs.filter(required_tags__contains=[filters["tag"]])
        if "q" in filters:
            jobs = jobs_with_text(jobs, filters["q"])
        page = super().page(jobs, floor)
        return {**page, "items": jobs_with_flags(page["items"])}
