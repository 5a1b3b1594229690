"""Jobs and attempts in a few words."""

from datetime import datetime
from typing import Any

from django.utils.safestring import SafeString

from controlplane.console.presenters.formatting import format_tags, shorten, time_since
from controlplane.core.durations import describe_exactly
from jobs import states
from jobs.models import Attempt
from jobs.selectors.jobs import DetailedJob
from jobs.states import JobState
from liveness import states as server_states
from liveness.states import ServerState

DESCRIPTION_LENGTH, REASON_LENGTH = 80, 100


def describe_action(action: dict[str, Any]) -> str:
    """What a job does, in a few words."""
    code = next((action[field] for field in ("command", "path", "name", "task") if action.get(field)), "")
    words = " ".join(code) if isinstance(code, list) else str(code)
    return shorten(f"{action.get('type')}: {words}", DESCRIPTION_LENGTH)


def describe_schedule(trigger: Any) -> str:
    """When a trigger is due."""
    return trigger.cron or f"every {trigger.interval_seconds:g} s"


def name_job(job: Any) -> str:
    """What its submitter calls a job; else what it does."""
    return job.name or describe_action(job.action)


def present_job(job: DetailedJob) -> dict[str, Any]:
    """A job as the lists show it."""
    last = job.last_attempt or {}
    is_live = job.state in states.LIVE
    seconds = last.get("seconds") if is_live or job.state in states.TERMINAL else None
    error = job.error or {}
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
        "code": error.get("code"),
        "reason": shorten(str(error.get("message") or ""), REASON_LENGTH),
        "made": time_since(job.created_at, job.now),
        "finished": job.finished_at and time_since(job.finished_at, job.now),
    }


def short_id(id: Any) -> str:
    """The end of an id: its beginning is a time, which neighbours share."""
    return str(id)[-12:]


LOST_HOLDERS = frozenset(set(ServerState) - server_states.ALIVE - {ServerState.TERMINATING})


def doubt_about(state: str, server: str | None) -> str:
    """Why a live job, or attempt, is not known to run, by the state of its server (SILENT: not heard). Empty: it is."""
    if server is None or state not in states.LIVE:
        return ""
    return "server silent" if server == "SILENT" else "server lost" if server in LOST_HOLDERS else ""


def count_losses(job: DetailedJob) -> int:
    """How often a worker was lost with a job: also the loss that it did not come back from."""
    ended_by_loss = job.state == JobState.FAILED and (job.error or {}).get("code") in states.QUARANTINED
    return job.resubmissions + ended_by_loss


def present_attempt(attempt: Attempt, now: datetime, server: str | None = None) -> dict[str, Any]:
    """An attempt as the page of its server lists it."""
    return {
        "it": attempt,
        "server": server,
        "what": name_job(attempt.job),
        "claimed": time_since(attempt.claimed_at, now),
        "finished": attempt.finished_at and time_since(attempt.finished_at, now),
    }
