"""Jobs and attempts as the pages describe them."""

from datetime import datetime
from typing import Any

from django.utils.html import format_html
from django.utils.safestring import SafeString

from controlplane.console.formatting import format_moment, format_tags, seconds_until, shorten, time_since
from controlplane.core.durations import describe_exactly
from jobs import states
from jobs.models import Attempt
from jobs.selectors.jobs import DetailedJob
from jobs.sql.rows.selectors import Prospect
from jobs.states import Flag, JobState

DESCRIPTION_LENGTH, REASON_LENGTH = 80, 100


def describe_action(action: dict[str, Any]) -> str:
    """Return a short description of what a job runs."""
    if not isinstance(action, dict):  # a person may have stored other values
        return shorten(str(action), DESCRIPTION_LENGTH)
    code = next((action[field] for field in ("command", "path", "name", "task") if action.get(field)), "")
    words = " ".join(map(str, code)) if isinstance(code, list) else str(code)
    return shorten(f"{action.get('type')}: {words}", DESCRIPTION_LENGTH)


def describe_schedule(trigger: Any) -> str:
    """Return the schedule of a trigger as text."""
    return trigger.cron or f"every {trigger.interval_seconds:g} s"


def name_job(job: Any) -> str:
    """Return the name of a job, or a description of what it runs."""
    return job.name or describe_action(job.action)


def describe_wait(job: DetailedJob, prospect: Prospect | None) -> tuple[str, SafeString | str]:
    """Return the reason why an open job does not run: a code and a sentence. Both are empty if none is known."""
    if prospect is not None and prospect.flag:
        return prospect.flag, Flag(prospect.flag).meaning
    if prospect is not None and prospect.fails_in is not None:
        left = seconds_until(prospect.fails_in, job.now)
        return "NO_MATCHING_WORKER", format_html("in {}, unless a worker with its tags becomes available", left)
    if job.cancel_requested_at and not job.finished_at:
        return "", "cancellation requested"
    if job.state == JobState.PENDING and job.available_at > job.now:
        return "", format_html("not before {}", format_moment(job.available_at, job.now))
    return "", ""


def present_job(job: DetailedJob, prospect: Prospect | None = None) -> dict[str, Any]:
    """Return a job as the lists show it."""
    last = job.last_attempt or {}
    is_live = job.state in states.LIVE
    seconds = last.get("seconds") if is_live or job.state in states.TERMINAL else None
    error = job.error or {}
    code, reason = error.get("code"), shorten(str(error.get("message") or ""), REASON_LENGTH)
    if not error:
        code, reason = describe_wait(job, prospect)
    return {
        "it": job,
        "id": SafeString(job.pk),
        "state": job.state,
        "tags": format_tags(tuple(job.required_tags)),
        "name": name_job(job),
        "what": describe_action(job.action) if job.name else "",
        "short_id": short_id(job.pk),
        "server": None if job.state == JobState.PENDING else last.get("server"),
        "server_state": last["server"]["state"] if is_live and last.get("server") else None,
        "losses": count_losses(job),
        "took": describe_exactly(seconds) if seconds is not None else None,
        "code": code,
        "reason": reason,
        "made": time_since(job.created_at, job.now),
        "finished": job.finished_at and time_since(job.finished_at, job.now),
    }


def short_id(id: Any) -> str:
    """Return the last 12 characters of an id. The first characters are a timestamp, so neighbours share them."""
    return str(id)[-12:]


def count_losses(job: DetailedJob) -> int:
    """Return how often a worker was lost that held this job, including the loss that ended the job."""
    ended_by_loss = job.state == JobState.FAILED and (job.error or {}).get("code") in states.QUARANTINED
    return job.resubmissions + ended_by_loss


def present_attempt(attempt: Attempt, now: datetime, server: str | None = None) -> dict[str, Any]:
    """Return an attempt as the page of its server lists it."""
    return {
        "it": attempt,
        "server": server,
        "what": name_job(attempt.job),
        "claimed": time_since(attempt.claimed_at, now),
        "finished": attempt.finished_at and time_since(attempt.finished_at, now),
    }
