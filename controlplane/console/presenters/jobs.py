"""Jobs and attempts in a few words."""

from datetime import datetime
from typing import Any

from controlplane.console.presenters.formatting import shorten, time_since
from jobs import states
from jobs.models import Attempt
from jobs.selectors import DetailedJob
from jobs.states import JobState
from liveness import states as server_states
from liveness.states import ServerState

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
        "server_state": job.holder["state"] if job.holder else None,
        "losses": count_losses(job),
        "made": time_since(job.created_at, job.now),
        "finished": job.finished_at and time_since(job.finished_at, job.now),
    }


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
        "what": describe_action(attempt.job.action),
        "claimed": time_since(attempt.claimed_at, now),
        "finished": attempt.finished_at and time_since(attempt.finished_at, now),
    }
