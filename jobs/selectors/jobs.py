"""Reads jobs for the API and the pages."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import (
    BooleanField,
    ExpressionWrapper,
    OuterRef,
    Prefetch,
    Q,
    QuerySet,
    Subquery,
    UUIDField,
    Value,
)
from django.db.models.functions import Coalesce

from controlplane.core.model_fields import ClockTimestamp
from controlplane.core.statements import fetch_result_sets
from jobs.choices import Unmatched
from jobs.conf import conf, flag_parameters
from jobs.models import Attempt, Execution, LateReport, WorkerJob
from jobs.models.jobs import IN_QUARANTINE
from jobs.selectors.contents import LARGE_FIELDS, MUCH, content, put_in_place
from jobs.sql import sql
from jobs.states import JobState

RESUBMISSIONS = WorkerJob.objects.filter(resubmission_of=OuterRef("pk"))

# A scalar subquery uses the index and never hashes the whole table.
IS_RESUBMITTED = Coalesce(
    Subquery(RESUBMISSIONS.values(yes=Value(True))[:1], output_field=BooleanField()), Value(False)
)

LAST_RESUBMISSION = Subquery(RESUBMISSIONS.order_by("-pk").values("pk")[:1], output_field=UUIDField())
"""Id of the last job as which an ended job was submitted again."""

CHILD_EXECUTION = Subquery(Execution.objects.filter(parent_step=OuterRef("pk")).values("pk"), output_field=UUIDField())


WITHOUT_WORKER = Q(state=JobState.RUNNING, attempt_id__isnull=True)
"""Condition of a running job that no worker holds."""


class DetailedJob(WorkerJob):
    """Type of the rows of the functions here. Never stored."""

    now: datetime
    is_step: bool
    is_cancelling: bool
    is_quarantined: bool
    is_resubmitted: bool
    resubmitted_as: UUID | None
    child_execution: UUID | None
    sources: dict[str, str] | None
    superseded_reports: list[dict[str, Any]]
    log: list[dict[str, Any]] | None
    usual_seconds: float | None
    flags: list[str]
    parked_by: dict[str, str] | None
    left_out: list[str]
    action_events: list[dict[str, Any]]
    last_attempt: dict[str, Any] | None

    class Meta:
        abstract = True


def jobs_with_attempts() -> QuerySet[WorkerJob]:
    """Return jobs with their attempts, the servers of these, and superseded reports.

    Each job also has its `child_execution` and the job it was `resubmitted_as`.
    """
    jobs = WorkerJob.objects.annotate(child_execution=CHILD_EXECUTION, resubmitted_as=LAST_RESUBMISSION)
    return jobs.prefetch_related(*attempts_and_superseded_reports())


def attempts_and_superseded_reports() -> tuple["Prefetch[Any]", ...]:
    much = f"sum(octet_length({{0}}::text)) over (order by jobs_attempt.id desc) > {MUCH}"  # the latest stay whole
    attempts = Attempt.objects.select_related("server").defer("error", "stack").annotate(**content("error", much))
    return (
        Prefetch("attempts", attempts.order_by("number")),
        Prefetch("late_reports", LateReport.objects.order_by("id")),
    )


def jobs_with_flags(jobs: Iterable[WorkerJob]) -> list[WorkerJob]:
    """Return jobs with `flags` (why they wait for a person, nearly always empty) and `left_out` fields.

    Each also has `parked_by`: what it waits for besides a worker.
    """
    rows: list[Any] = list(jobs)
    put_in_place(rows, LARGE_FIELDS)
    put_in_place((attempt for job in rows for attempt in job.attempts.all()), ["error"])
    hanging = [job.pk for job in rows if may_stand_still(job)]
    waiting = [job.pk for job in rows if job.state == JobState.PENDING]
    flagged: Any = []
    held: Any = []
    if hanging or waiting:
        flagged, held = fetch_result_sets(
            sql.read_flags, sql.find_holds_of_jobs, only=hanging, jobs=waiting, scan_limit=None, **flag_parameters()
        )
    flags: dict[UUID, list[str]] = {}
    for row in flagged:
        flags.setdefault(row.id, []).append(row.flag)
    holds = {row.job: row.hold for row in held}
    for job in rows:
        job.flags = flags.get(job.pk, [])
        if job.pk in holds:
            job.parked_by = {"hold": str(holds[job.pk])}
    return rows


def flagged_job_ids(flag: str, limit: int) -> list[UUID]:
    """Return the latest jobs with this flag, up to a limit."""
    found = sql.list_flagged_jobs.fetch_rows(flag=flag, limit=limit, only=None, scan_limit=limit, **flag_parameters())
    return [row.id for row in found]


def may_stand_still(job: WorkerJob) -> bool:
    """Return True if the job may have a flag. A new job without a deadline has none.

    It fails when no worker claims it.
    """
    if job.deadline_at is not None and job.finished_at is None:
        return True
    if job.state == JobState.PENDING:
        return job.attempt_count > 0 or job.unmatched == Unmatched.WAIT or conf().unmatched_after is None
    return job.state == JobState.RUNNING or (job.state == JobState.CLAIMED and not conf().auto_requeue_stale_claimed)


def jobs_with_action_guards(jobs: QuerySet[WorkerJob]) -> QuerySet[WorkerJob]:
    """Return jobs with the annotations for guards.

    These are `is_step`, `is_execution` and `is_waiting` (now), `is_cancelling`, `is_quarantined`, `is_resubmitted`
    and `is_scheduled` (for a later time).
    """
    return jobs.annotate(
        is_step=boolean_expression(Q(execution__isnull=False)),
        # A running job that no worker holds is an execution or waits (constraint `job_held_while_live`).
        is_execution=boolean_expression(WITHOUT_WORKER & Q(wait__isnull=True)),
        is_waiting=boolean_expression(WITHOUT_WORKER & Q(wait__isnull=False)),
        is_cancelling=boolean_expression(Q(cancel_requested_at__isnull=False)),
        is_quarantined=Coalesce(boolean_expression(IN_QUARANTINE), Value(False)),
        is_resubmitted=IS_RESUBMITTED,
        is_scheduled=boolean_expression(Q(state=JobState.PENDING) & Q(available_at__gt=ClockTimestamp())),
    )


def boolean_expression(condition: Q) -> ExpressionWrapper:
    return ExpressionWrapper(condition, output_field=BooleanField())


def jobs_without_content() -> QuerySet[WorkerJob]:
    """Return jobs without payload, output and checkpoint, with `now`."""
    return WorkerJob.objects.annotate(now=ClockTimestamp()).defer("payload", "output", "checkpoint", "fingerprint")


def actionable_jobs() -> QuerySet[WorkerJob]:
    """Return `jobs_without_content()` with the annotations of `jobs_with_action_guards()`."""
    return jobs_with_action_guards(jobs_without_content())


def quarantined_jobs() -> QuerySet[WorkerJob]:
    """Return the jobs of `jobs_without_content()` that are in quarantine."""
    return jobs_without_content().filter(IN_QUARANTINE)


def actionable_quarantine() -> QuerySet[WorkerJob]:
    """Return the jobs of `actionable_jobs()` that are in quarantine."""
    return jobs_with_action_guards(quarantined_jobs())


def jobs_visible_to(owner: UUID | None) -> QuerySet[WorkerJob]:
    """Return jobs as in `jobs_with_attempts()`, of one owner (None: of all)."""
    return jobs_with_attempts() if owner is None else jobs_with_attempts().filter(owner=owner)
