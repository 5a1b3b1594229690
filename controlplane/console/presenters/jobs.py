"""Jobs and attempts in a few words."""

from datetime import datetime
from typing import Any

from controlplane.console.presenters.formatting import shorten, time_since
from jobs.models import Attempt
from jobs.selectors import DetailedJob

DESCRIPTION_LENGTH = 80


def describe_action(action: dict[str, Any]) -> str:
    """What a job does, in a few words."""
    code = next((action[field] for field in ("command", "path", "name", "task") if action.get(field)), "")
    words = " ".join(code) if isinstance(code, list) else str(code)
    return shorten(f"{action.get('type')}: {words}", DESCRIPTION_LENGTH)


def describe_schedule(trigger: Any) -> str:
    """When a trigger is due."""
    return trigger.cron or f"every {trigger.interval_seconds:g} s"


def present_job(job: DetailedJob) -> dict[str, Any]:
    """A job as the lists show it."""
    return {
        "it": job,
        "what": describe_action(job.action),
        "made": time_since(job.created_at, job.now),
        "finished": job.finished_at and time_since(job.finished_at, job.now),
    }


def present_attempt(attempt: Attempt, now: datetime) -> dict[str, Any]:
    """An attempt as the server's page lists it."""
    return {
        "it": attempt,
        "what": describe_action(attempt.job.action),
        "claimed": time_since(attempt.claimed_at, now),
        "finished": attempt.finished_at and time_since(attempt.finished_at, now),
    }
