"""Build the timeline of a job."""

from datetime import datetime
from typing import Any

from jobs import states
from jobs.models import WorkerJob


def job_timeline(job: WorkerJob) -> list[dict[str, Any]]:
    """Return the events of a job, in order. Entries about the job itself have no attempt."""
    entries = [timeline_entry(None, states.JobState.PENDING, job.created_at)]
    for attempt in job.attempts.all():
        server = {"id": attempt.server_id, "name": attempt.server.name}
        entries.append(timeline_entry(attempt.number, states.AttemptState.CLAIMED, attempt.claimed_at, server))
        if attempt.started_at:
            entries.append(timeline_entry(attempt.number, states.AttemptState.RUNNING, attempt.started_at, server))
        if attempt.finished_at:
            entries.append(timeline_entry(attempt.number, attempt.state, attempt.finished_at, server, attempt.reason))
            entries[-1]["by"] = attempt.ended_by
    if job.finished_at:
        entries.append(timeline_entry(None, job.state, job.finished_at, reason=(job.error or {}).get("code", "")))
    return entries


def timeline_entry(
    attempt: int | None, state: str, at: datetime, server: dict[str, Any] | None = None, reason: str = ""
) -> dict[str, Any]:
    return {"attempt": attempt, "state": str(state), "at": at, "server": server, "reason": reason}
