"""Outlook of a job that a server holds: what happens next, and when."""

from django.utils.html import conditional_escape, format_html
from django.utils.safestring import SafeString

from controlplane.console.formatting import link_to_server, seconds_since, seconds_until
from controlplane.console.presenters.clauses import render_clause
from controlplane.core.durations import describe_duration
from jobs.choices import OnWorkerLost
from jobs.conf import conf
from jobs.models import Attempt
from jobs.selectors.jobs import DetailedJob
from jobs.states import AttemptState
from jobs.verdict.servers import describe_loss
from liveness import states
from liveness.selectors.servers import TimedServer


def describe_job_outlook(
    job: DetailedJob, attempt: Attempt, server: TimedServer, *, links_it: bool
) -> list[SafeString]:
    """Return sentences about what happens next to a job whose attempt this server holds.

    `server` comes from `servers_with_timing()`. `links_it` is True if the user may view servers.
    """
    name = link_to_server(server) if links_it else conditional_escape(server.name)
    sentences = []
    if job.cancel_requested_at:
        sentences.append(format_html("CANCELLED when {} confirms it, unless the job completes first.", name))
    if server.state in states.ALIVE:
        sentences += describe_on_alive(job, attempt, server, name)
    else:
        sentences += describe_on_lost(job, attempt, server, name)
    if job.timeout_seconds is not None and attempt.started_at and server.state in states.ALIVE:
        left = job.timeout_seconds - (job.now - attempt.started_at).total_seconds()
        if left > 0:
            sentences.append(
                format_html("FAILED with STEP_TIMEOUT in {}, unless it ends before.", seconds_until(left, job.now))
            )
    return sentences


def describe_on_alive(job: DetailedJob, attempt: Attempt, server: TimedServer, name: SafeString) -> list[SafeString]:
    then = describe_after_loss(job, attempt, server)
    if server.silent:
        loss = render_clause(describe_loss(server), server.now)
        silence = seconds_since(server.silence, server.now)
        return [
            format_html("{} is silent for {}, so the job may or may not be running.", name, silence),
            format_html("{} is {}, unless a heartbeat arrives before. Then the job {}.", name, loss, then),
        ]
    what = "starts the job or gives it back" if attempt.state == AttemptState.CLAIMED else "reports the end of the job"
    limit = describe_duration(server.timeout)
    return [
        format_html("{} {}.", name, what),
        format_html("If {} is silent for {}, it becomes DISCONNECTED, and the job {}.", name, limit, then),
    ]


def describe_on_lost(job: DetailedJob, attempt: Attempt, server: TimedServer, name: SafeString) -> list[SafeString]:
    first = format_html("{} is {}.", name, server.state)
    end = describe_end_of_wait(job, attempt)
    if server.lost_in is not None and server.lost_in > 0:
        return [
            first,
            format_html(
                "It finishes the job, otherwise it counts as lost in {}.", seconds_until(server.lost_in, server.now)
            ),
        ]
    if attempt.state == AttemptState.CLAIMED:
        return [
            first,
            SafeString("At the next check the job waits for another worker, because its code has not started."),
        ]
    if server.moves_in is None:
        return [first, SafeString("The job stays there (restart strategy NEVER). Resubmit it or fail it by hand.")]
    if server.moves_in > 0 and not is_failed_at_once(job, server):
        return [
            first,
            format_html(
                "In {} the grace period ends. Then the job {}.", seconds_until(server.moves_in, server.now), end
            ),
        ]
    return [first, format_html("At the next check the job {}.", end)]


def describe_after_loss(job: DetailedJob, attempt: Attempt, server: TimedServer) -> str:
    """Return what happens to the job after its server is lost."""
    if attempt.state == AttemptState.CLAIMED:
        return "waits for another worker at once, because its code has not started"
    end = describe_end_of_wait(job, attempt)
    if server.grace is None:
        return "stays with it until you resubmit or fail it (restart strategy NEVER)"
    if not server.grace or is_failed_at_once(job, server):
        return f"{end} at once"
    return f"stays there for the grace period of {describe_duration(server.grace)} and then {end}"


def is_failed_at_once(job: DetailedJob, server: TimedServer) -> bool:
    """Return True if a loss makes the job fail. Such a job does not wait for the grace period."""
    return job.on_worker_lost == OnWorkerLost.FAIL and server.grace is not None


def describe_end_of_wait(job: DetailedJob, attempt: Attempt) -> str:
    if job.on_worker_lost == OnWorkerLost.FAIL:
        return "is FAILED with WORKER_CRASHED"
    if job.resubmissions >= conf().max_resubmissions:
        return "is FAILED with RESUBMISSIONS_EXHAUSTED, because it was lost too often"
    return "waits for another worker"
