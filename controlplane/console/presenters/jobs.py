"""Jobs and attempts as the pages describe them."""

from datetime import datetime
from typing import Any

from django.utils.html import format_html
from django.utils.safestring import SafeString

from controlplane.console.formatting import (
    format_moment,
    format_tags,
    seconds_since,
    seconds_until,
    shorten,
    time_since,
    time_until,
)
from controlplane.console.presenters.job_times import describe_silence
from controlplane.core.durations import describe_exactly
from jobs import states
from jobs.models import Attempt
from jobs.references import is_reference
from jobs.selectors.jobs import DetailedJob
from jobs.sql.rows.selectors import Prospect
from jobs.states import Flag, JobState

FIELDS_NAMED = ("command", "path", "name", "task", "message", "signal", "until", "seconds")
"""Fields of an action of which the first one describes it."""
DESCRIPTION_LENGTH, REASON_LENGTH = 80, 100
TAGS_OF_ACTIONS = {"script", "python", "docker", "kubernetes", "celery"}
"""Tags that many jobs have because of their action."""
FLAGS_ABOUT_TAGS = (Flag.WAITS_FOR_TAGS, Flag.WAITS_FOR_SLOTS, Flag.REFUSED_BY_ALL)


def describe_action(action: dict[str, Any]) -> str:
    """Return a short description of what a job runs."""
    if not isinstance(action, dict):  # a person may have stored other values
        return shorten(str(action), DESCRIPTION_LENGTH)
    code: Any = next((action[field] for field in FIELDS_NAMED if action.get(field)), "")
    if is_reference(code):
        code = code["from"]
    words = " ".join(map(str, code)) if isinstance(code, list) else str(code)
    return shorten(f"{action.get('type')}: {words}", DESCRIPTION_LENGTH)


def describe_schedule(trigger: Any) -> str:
    """Return the schedule of a trigger as text."""
    if trigger.on_signal is not None:
        return f"on {trigger.on_signal}"
    return trigger.cron or f"every {trigger.interval_seconds:g} s"


def name_job(job: Any) -> str:
    """Return the name of a job, or a description of what it runs."""
    return job.name or describe_action(job.action)


def describe_wait(job: DetailedJob, prospect: Prospect | None) -> tuple[str, SafeString | str]:
    """Return the reason why an open job does not run: a code and a sentence. Both are empty if none is known."""
    tags = ", ".join(tag for tag in job.required_tags if tag not in TAGS_OF_ACTIONS) or ", ".join(job.required_tags)
    if prospect is not None and prospect.flag:
        # A list cuts long reasons, so the tags come first.
        about = f"{tags}: " if prospect.flag in FLAGS_ABOUT_TAGS else ""
        return prospect.flag, about + Flag(prospect.flag).meaning
    if prospect is not None and prospect.fails_in is not None:
        left = seconds_until(prospect.fails_in, job.now)
        return "NO_MATCHING_WORKER", format_html("in {}, unless a worker with {} becomes available", left, tags)
    if job.cancel_requested_at and not job.finished_at:
        return "", "cancellation requested"
    if job.waiting_for:
        return "", describe_event(job.waiting_for, job.now)
    if job.state == JobState.PENDING and (parked := describe_parked(job)):
        return "", parked
    if job.state == JobState.PENDING and job.available_at > job.now:
        return "", format_html("not before {}", format_moment(job.available_at, job.now))
    return "", ""


def describe_parked(job: DetailedJob) -> str:
    """Return what parks a waiting job, or an empty text if it only waits for a worker."""
    for by, value in (job.parked_by or {}).items():
        match by:
            case "hold":
                return "On hold"
            case "max_parallel":
                return f"Waiting for other items of {value}"
            case "limit" | "execution_limit":
                return f"Limited by {value}"
    return ""


def describe_event(wait: dict[str, Any], now: datetime) -> SafeString:
    """Return the event that a step waits for, like "waits until 18:00:00"."""
    event = SafeString("waits")
    if wait["what"] == "signal":
        event = format_html("waits for the signal {}", wait["signal"])
    elif wait["what"] == "answer":
        event = format_html("waits for an answer: {}", wait["message"])
    if wait["until"] is None:
        return event
    until = datetime.fromisoformat(wait["until"])
    return format_html("{} until {}, in {}", event, format_moment(until, now), time_until(until, now))


def present_answer(job: Any) -> dict[str, Any]:
    """Return a step that waits for an answer as the page of answers lists it."""
    wait = job.waiting_for
    return {
        "it": job,
        "wait": wait,
        "since": time_since(job.available_at, job.now),
        "until": wait["until"] and time_until(datetime.fromisoformat(wait["until"]), job.now),
    }


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
        "took": describe_run(seconds, job),
        "quiet": describe_silence(job),
        "code": code,
        "reason": reason,
        "hint": "" if isinstance(reason, SafeString) else reason,  # a time in it would make each poll differ
        "made": time_since(job.created_at, job.now),
        "finished": job.finished_at and time_since(job.finished_at, job.now),
    }


def describe_run(seconds: float | None, job: DetailedJob) -> str | None:
    """Return how long a job ran. The page counts the time of a running job, so that a poll finds no change."""
    if seconds is None:
        return None
    return describe_exactly(seconds) if job.state in states.TERMINAL else seconds_since(seconds, job.now)


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
