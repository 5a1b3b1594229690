"""Jobs and attempts in a few words."""

from typing import Any

from controlplane.console.presenters.words import ago
from jobs.states import Flag, JobState

LONGEST = 80


FLAGS_SAID = {
    Flag.HELD_BY_LOST_SERVER: (
        "RUNNING on a server that is lost, whose restart strategy is NEVER: fail it or resubmit it by hand",
        JobState.RUNNING,
    ),
    Flag.WAITS_FOR_TAGS: ("waiting for tags that no worker alive has", JobState.PENDING),
    Flag.REFUSED_BY_ALL: ("waiting though every worker alive that has the tags refused it", JobState.PENDING),
    Flag.WAITS_AFTER_LOSS: ("waiting for another worker: one that had it is gone", JobState.PENDING),
}
"""Why a job stands still, and in which state such a job is."""


def action_said(action: dict[str, Any]) -> str:
    """What a job does, in a few words."""
    what = action.get("command") or action.get("path") or action.get("name") or ""
    words = " ".join(what) if isinstance(what, list) else str(what)
    said = f"{action.get('type')}: {words}"
    return said if len(said) <= LONGEST else f"{said[: LONGEST - 1]}…"


def job_told(job: Any) -> dict[str, Any]:
    """A job as the lists show it."""
    return {
        "it": job,
        "what": action_said(job.action),
        "made": ago(job.created_at, job.now),
        "finished": job.finished_at and ago(job.finished_at, job.now),
    }


def attempt_told(attempt: Any, now: Any) -> dict[str, Any]:
    """An attempt as the server's page lists it."""
    return {
        "it": attempt,
        "what": action_said(attempt.job.action),
        "claimed": ago(attempt.claimed_at, now),
        "finished": attempt.finished_at and ago(attempt.finished_at, now),
    }
