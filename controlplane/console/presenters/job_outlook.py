"""What becomes of a job that a server has: when, and what follows from that."""

from django.utils.html import conditional_escape, format_html
from django.utils.safestring import SafeString

from controlplane.console.presenters.clauses import render_clause
from controlplane.console.presenters.formatting import link_to_server, seconds_since, seconds_until
from controlplane.core.durations import describe_duration
from jobs.conf import conf
from jobs.models import Attempt
from jobs.selectors.jobs import DetailedJob
from jobs.states import AttemptState, OnWorkerLost
from jobs.verdict.servers import describe_loss
from liveness import states
from liveness.selectors.servers import TimedServer


def describe_job_outlook(
    job: DetailedJob, attempt: Attempt, server: TimedServer, *, links_it: bool
) -> list[SafeString]:
    """What happens next to a job whose attempt this server has, as `servers_with_timing()` has it; a sentence each.

    `links_it`: who looks may view servers.
    """
    name = link_to_server(server) if links_it else conditional_escape(server.name)
    sentences = []
    if job.cancel_requested_at:
        sentences.append(format_html("CANCELLED when {} confirms it, unless it completes first.", name))
    if server.state in states.ALIVE:
        sentences += describe_on_alive(job, attempt, server, name)
    else:
        sentences += describe_on_lost(job, attempt, server, name)
    if job.timeout_seconds is not None and attempt.started_at and server.state in states.ALIVE:
        left = job.timeout_seconds - (job.now - attempt.started_at).total_seconds()
        if left > 0:
            sentences.append(
                format_html("FAILED with STEP_TIMEOUT in {}, unless it ends.", seconds_until(left, job.now))
            )
    return sentences


def describe_on_alive(job: DetailedJob, attempt: Attempt, server: TimedServer, name: SafeString) -> list[SafeString]:
    then = describe_after_loss(job, attempt, server)
    if server.silent:
        loss = render_clause(describe_loss(server), server.now)
        silence = seconds_since(server.silence, server.now)
        return [
            format_html("{} is silent for {}: whether the job still runs is not known.", name, silence),
            format_html("{} is {}, unless a heartbeat comes before. Then the job {}.", name, loss, then),
        ]
    what = "starts its code, or gives it back" if attempt.state == AttemptState.CLAIMED else "reports its end"
    limit = describe_duration(server.timeout)
    return [
        format_html("{} {}.", name, what),
        format_html("Should {} be silent for {}, it is DISCONNECTED, and the job {}.", name, limit, then),
    ]


def describe_on_lost(job: DetailedJob, attempt: Attempt, server: TimedServer, name: SafeString) -> list[SafeString]:
    first = format_html("{} is {}.", name, server.state)
    end = describe_end_of_wait(job, attempt)
    if server.lost_in is not None and server.lost_in > 0:
        return [
            first,
            format_html("It finishes the job, or in {} counts as lost.", seconds_until(server.lost_in, server.now)),
        ]
    if attempt.state == AttemptState.CLAIMED:
        return [first, format_html("At the next check the job waits for another worker: its code has not started.")]
    if server.moves_in is None:
        return [first, SafeString("The job stays with it (restart strategy NEVER): resubmit or fail it by hand.")]
    if server.moves_in > 0 and not is_failed_at_once(job, server):
        return [
            first,
            format_html(
                "In {} the grace period has passed: the job {}.", seconds_until(server.moves_in, server.now), end
            ),
        ]
    return [first, format_html("At the next check the job {}.", end)]


def describe_after_loss(job: DetailedJob, attempt: Attempt, server: TimedServer) -> str:
    """What becomes of it once its server is lost."""
    if attempt.state == AttemptState.CLAIMED:
        return "waits for another worker at once, for its code has not started"
    end = describe_end_of_wait(job, attempt)
    if server.grace is None:
        return "stays with it, until somebody resubmits or fails it (restart strategy NEVER)"
    if not server.grace or is_failed_at_once(job, server):
        return f"{end} at once"
    return f"stays for the grace period of {describe_duration(server.grace)}, and then {end}"


def is_failed_at_once(job: DetailedJob, server: TimedServer) -> bool:
    """What is not to be run again is not waited for."""
    return job.on_worker_lost == OnWorkerLost.FAIL and server.grace is not None


def describe_end_of_wait(job: DetailedJob, attempt: Attempt) -> str:
    if job.on_worker_lost == OnWorkerLost.FAIL:
        return "is FAILED with WORKER_CRASHED"
    if job.resubmissions >= conf().max_resubmissions:
        return "is FAILED with RESUBMISSIONS_EXHAUSTED: it was lost too often"
    return "waits for another worker"
