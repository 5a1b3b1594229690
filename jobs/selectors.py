"""Reads for the API and the pages."""

from typing import Any

from django.db.models import Prefetch, QuerySet

from jobs import states
from jobs.models import Attempt, LateReport, WorkerJob


def jobs() -> QuerySet[WorkerJob]:
    """Jobs with their attempts, these with their servers, and the reports that came too late."""
    attempts = Attempt.objects.select_related("server").order_by("number")
    return WorkerJob.objects.prefetch_related(
        Prefetch("attempts", attempts), Prefetch("late_reports", LateReport.objects.order_by("id"))
    )


def timeline(job: WorkerJob) -> list[dict[str, Any]]:
    """What happened to a job, in order. Entries of the job itself have no attempt."""
    entries = [entry(None, states.JobState.PENDING, job.created_at)]
    for attempt in job.attempts.all():
        server = {"id": attempt.server_id, "name": attempt.server.name}
        entries.append(entry(attempt.number, states.AttemptState.CLAIMED, attempt.claimed_at, server))
        if attempt.started_at:
            entries.append(entry(attempt.number, states.AttemptState.RUNNING, attempt.started_at, server))
        if attempt.finished_at:
            entries.append(entry(attempt.number, attempt.state, attempt.finished_at, server, attempt.reason))
    if job.finished_at:
        entries.append(entry(None, job.state, job.finished_at, reason=(job.error or {}).get("code", "")))
    return entries


def entry(
    attempt: int | None, state: str, at: Any, server: dict[str, Any] | None = None, reason: str = ""
) -> dict[str, Any]:
    return {"attempt": attempt, "state": str(state), "at": at, "server": server, "reason": reason}


def live_attempts(server: Any) -> QuerySet[Attempt]:
    """What a server holds."""
    return Attempt.objects.filter(server_id=server, state__in=states.LIVE).order_by("claimed_at")
