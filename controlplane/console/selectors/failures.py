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
"""The message of an error, with # for each number, so that those that differ in an id alone are one."""


def errors_of_jobs(jobs: QuerySet[WorkerJob], limit: int) -> "QuerySet[Any, Any]":
    """How many of these jobs ended with which error, by `code` and by message, in which numbers do not count,
    `pattern`; the `last` of each, and a `message` in full; the most frequent first."""
    return (
        jobs.filter(error__isnull=False)
        .order_by()
        .values(code=F("error__code"), pattern=MESSAGE_PATTERN)
        .annotate(count=Count("pk"), last=Max("finished_at"), message=Max(MESSAGE))
        .order_by("-count", "-last")[:limit]
    )
