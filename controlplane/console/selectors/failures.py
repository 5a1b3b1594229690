"""Errors of failed jobs, in groups."""

from typing import Any

from django.db.models import Count, F, Func, Max, QuerySet, TextField

from jobs.models import WorkerJob

MESSAGE = Func(F("error"), template="left(%(expressions)s ->> 'message', 200)", output_field=TextField())
MESSAGE_PATTERN = Func(
    F("error"),
    template=r"coalesce(regexp_replace(left(%(expressions)s ->> 'message', 200), '[0-9]+', '#', 'g'), '')",
    output_field=TextField(),
)
"""Error message with # for each number, so that messages that differ only in an id form one group."""


def errors_of_jobs(jobs: QuerySet[WorkerJob], limit: int) -> "QuerySet[Any, Any]":
    """Return the errors of these jobs, grouped by `code` and message `pattern`, most frequent first.

    Each group has its `count`, the time of its `last` error, and one full `message`.
    """
    return (
        jobs.filter(error__isnull=False)
        .order_by()
        .values(code=F("error__code"), pattern=MESSAGE_PATTERN)
        .annotate(count=Count("pk"), last=Max("finished_at"), message=Max(MESSAGE))
        .order_by("-count", "-last")[:limit]
    )
