"""Story of a job in one sentence: how it ended, where it runs, or why it waits."""

from typing import Any

from django.utils.html import conditional_escape, format_html, format_html_join
from django.utils.safestring import SafeString

from controlplane.console.formatting import format_state, link_to_server, shorten
from controlplane.console.presenters.jobs import describe_event, describe_parked
from controlplane.core.durations import describe_exactly
from jobs.models import Attempt
from jobs.selectors.jobs import DetailedJob
from jobs.states import AttemptState, JobState

NAMED = 3
"""Number of lost servers that the sentence names."""
LOST = frozenset({AttemptState.RESUBMITTED, AttemptState.REQUEUED})
TONES = {
    JobState.COMPLETED: ("ok", "well"), JobState.FAILED: ("bad", "bad"), JobState.RUNNING: ("ok", "RUNNING"),
    JobState.CLAIMED: ("move", "CLAIMED"), JobState.EXPIRED: ("warn", "EXPIRED"),
}  # fmt: skip


def title_of_job(job: Any) -> str:
    """Return the name of a job. Without a name, return its function, handler, task or command."""
    action = job.action if isinstance(job.action, dict) else {}
    code = next((action[field] for field in ("command", "path", "name", "task") if action.get(field)), "")
    words = " ".join(map(str, code)) if isinstance(code, list) else str(code)
    if action.get("type") == "callable":
        words = words.rpartition(":")[2]
    return job.name or shorten(words, 120) or str(action.get("type", "job"))


def tell_story(job: DetailedJob, doubt: str, *, links_servers: bool) -> dict[str, Any]:
    """Return the sentence, its tone and its icon."""

    def name(attempt: Attempt) -> SafeString:
        return link_to_server(attempt.server) if links_servers else conditional_escape(attempt.server.name)

    attempts = list(job.attempts.all())
    last = attempts[-1] if attempts else None
    lost = [attempt for attempt in attempts if attempt.state in LOST]
    tone, icon = TONES.get(JobState(job.state), ("idle", job.state))
    if doubt and last:
        sentence = format_html("{} on {}, but the {}.", format_state(job.state), name(last), doubt)
        tone, icon = "warn", "SILENT"
    else:
        sentence = describe_state(job, last, lost, name)
    return {"sentence": sentence, "tone": tone, "icon": icon}


def describe_state(job: DetailedJob, last: Attempt | None, lost: list[Attempt], name: Any) -> SafeString:
    servers = format_html_join(", ", "{}", ((name(attempt),) for attempt in lost[:NAMED]))
    before = SafeString("")
    if lost:
        # Attempts that an operator took away are no losses.
        words = ("loss", "losses") if len(lost) == job.resubmissions else ("earlier attempt", "earlier attempts")
        before = format_html(" after {} {} ({})", len(lost), words[len(lost) > 1], servers)
    match job.state:
        case JobState.COMPLETED | JobState.FAILED if last and last.state == job.state:
            return format_html("{}{}: {} ran it{}.", format_state(job.state), before, name(last), describe_run(last))
        case JobState.RUNNING if last:
            return format_html("Running on {}{}.", name(last), before)
        case JobState.CLAIMED if last:
            return format_html("Claimed by {}{}, and about to start.", name(last), before)
        case JobState.RUNNING if job.waiting_for:
            wait = describe_event(job.waiting_for, job.now)
            return format_html("It needs no worker: it {}{}", wait, "" if wait.endswith(("?", ".", "!")) else ".")
        case JobState.PENDING:
            return format_html("{}{}.", describe_parked(job) or "Waiting for a worker", before)
        case JobState.CANCELLED:
            event = next((event for event in job.action_events if "cancel" in event["action"]), None)
            who = f" by {event['actor']}" if event else ""
            why = f" Note: {shorten(event['note'], 200)}" if event and event["note"] else ""
            return format_html("Cancelled{}{}.{}", who, before, why)
    return format_html("{}{}.", format_state(job.state), before)


def describe_run(attempt: Attempt) -> str:
    if not attempt.started_at or not attempt.finished_at:
        return ""
    return f" in {describe_exactly((attempt.finished_at - attempt.started_at).total_seconds())}"
