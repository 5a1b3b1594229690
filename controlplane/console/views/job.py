"""Page of one job: its story, its attempts as lanes, and its content in tabs."""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse

from controlplane.console.actions.answer_form import PERMISSION as ANSWER_PERMISSION
from controlplane.console.actions.job_forms import list_job_forms
from controlplane.console.actions.jobs import (
    DISMISS_ACTION,
    DUMP_STACK_ACTION,
    JOB_ACTIONS,
    RESUBMIT_AGAIN_ACTION,
    RUN_NOW_ACTION,
)
from controlplane.console.actions.servers import list_permitted_actions
from controlplane.console.charts.lanes import (
    JobChart,
    OwnBeats,
    SignsOfLife,
    SupersededReport,
    beat_resolution,
    build_job_chart,
    drawn_period,
)
from controlplane.console.doubt import doubt_about
from controlplane.console.formatting import (
    format_moment,
    seconds_until,
    time_since,
    time_until,
)
from controlplane.console.page import render_page, require_reader, sees, show_not_found
from controlplane.console.presenters.action_events import present_action_events
from controlplane.console.presenters.contents import LINES_SHOWN, TEXT_SHOWN, present_content_tabs, present_contents
from controlplane.console.presenters.holds import present_hold_in_json
from controlplane.console.presenters.job_outlook import describe_job_outlook
from controlplane.console.presenters.job_story import tell_story, title_of_job
from controlplane.console.presenters.job_times import describe_times
from controlplane.console.presenters.jobs import count_losses, describe_action, short_id
from controlplane.core.database.replica import read_past
from controlplane.core.durations import describe_exactly
from jobs.choices import OnWorkerLost
from jobs.conf import conf
from jobs.errors import JobNotWaiting
from jobs.selectors.job_details import job_details
from jobs.selectors.jobs import DetailedJob, jobs_with_flags
from jobs.selectors.placement import AHEAD_COUNTED, job_placement
from jobs.selectors.servers import servers_with_held_attempts
from jobs.selectors.timeline import job_timeline
from jobs.states import AttemptState, Flag, JobKind, JobState
from liveness.conf import conf as liveness_conf
from liveness.selectors.heartbeats import own_outages, signs_of_life

PLACES_SHOWN = 50
OF_ONE_JOB = RUN_NOW_ACTION | DUMP_STACK_ACTION | JOB_ACTIONS | RESUBMIT_AGAIN_ACTION


@require_reader("job")
def show_job(request: HttpRequest, job: UUID) -> HttpResponse:
    """Show one job: attempts as lanes and as a table, why it waits, its input and its output."""
    details: Any = read_past(request, partial(job_details, job, LINES_SHOWN), is_past=has_ended)
    if details is None:
        return show_not_found(request, "job")
    placed = present_placement(details)
    if placed is None:
        jobs_with_flags([details])
    holder = next((attempt for attempt in details.attempts.all() if attempt.finished_at is None), None)
    servers = servers_with_held_attempts()
    server = servers.filter(pk=holder.server_id).first() if holder else None
    server_state = None if server is None else "SILENT" if server.silent else server.state
    superseded = [
        SupersededReport(row["number"], datetime.fromisoformat(row["at"]), row["event"], row["reason"])
        for row in details.superseded_reports
    ]
    shown = {
        "title": title_of_job(details),
        "has_own_head": True,
        "short_id": short_id(details.pk),
        "page_url": request.build_absolute_uri(request.path),
        "story": tell_story(details, doubt_about(details.state, server_state), links_servers=sees(request, "server")),
        "job": details,
        "what": describe_action(details.action),
        "made": time_since(details.created_at, details.now),
        "finished": details.finished_at and time_since(details.finished_at, details.now),
        "deadline": details.deadline_at and format_moment(details.deadline_at, details.now),
        "kept": details.checkpoint_at and time_since(details.checkpoint_at, details.now),
        "losses": count_losses(details),
        "server_state": server_state,
        "outlook": describe_job_outlook(details, holder, server, links_it=sees(request, "server"))
        if holder and server
        else [],
        "chart": build_lanes(details, superseded, doubt_about(details.state, server_state)),
        "timeline": present_timeline(details),
        "errors": present_errors(details),
        "took": describe_times(details),
        "reports": [
            (row, format_moment(report.at, details.now))
            for row, report in zip(details.superseded_reports, superseded, strict=True)
        ],
        "action_events": present_action_events(details),
        "flags": [Flag(flag).meaning for flag in details.flags],
        "origin": JobKind(details.kind).meaning,
        "if_worker_lost": OnWorkerLost(details.on_worker_lost).meaning,
        "placement": placed,
        "holder": holder,
        "may_answer": (
            waits_for_answer(details) and sees(request, "execution") and request.user.has_perm(ANSWER_PERMISSION)
        ),
        "actions": [
            *(("jobs", action) for action in list_permitted_actions(request, OF_ONE_JOB, details)),
            *(("quarantine", action) for action in list_permitted_actions(request, DISMISS_ACTION, details)),
        ],
        "stacks": [
            (attempt, attempt.stack_at and format_moment(attempt.stack_at, details.now))
            for attempt in details.attempts.all()
            if attempt.stack or (attempt.dump_requested_at and attempt.finished_at is None)
        ],
        "forms": list_job_forms(request.user, details),
        "lines": details.log or [],
        "lines_shown": LINES_SHOWN,
        "servers": {attempt.server_id: attempt.server for attempt in details.attempts.all()}.values()
        if sees(request, "server")
        else (),
        **present_contents(details),
    }
    shown["tabs"] = present_content_tabs(shown)
    return render_page(request, "job", shown, is_over=details.finished_at is not None)


def waits_for_answer(job: DetailedJob) -> bool:
    wait = job.waiting_for if job.state == JobState.RUNNING else None
    return wait is not None and wait["what"] == "answer"


def has_ended(job: DetailedJob | None) -> bool:
    return job is not None and job.finished_at is not None


def present_timeline(job: DetailedJob) -> list[tuple[dict[str, Any], str, str | None, str | None]]:
    """Return the events of a job, each with its time and the time since the previous event.

    A running attempt also has the time of its own last heartbeat.
    """
    rows: list[tuple[dict[str, Any], str, str | None, str | None]] = []
    beats = {
        attempt.number: format_moment(attempt.heartbeat_at, job.now)
        for attempt in job.attempts.all()
        if attempt.heartbeat_at
    }
    before: datetime | None = None
    for entry in job_timeline(job):
        after = None if before is None else describe_exactly((entry["at"] - before).total_seconds())
        beat = beats.get(entry["attempt"]) if entry["state"] == AttemptState.RUNNING else None
        rows.append((entry, format_moment(entry["at"], job.now), after, beat))
        before = entry["at"]
    return rows


ERRORS_SHOWN = 10


def present_errors(job: DetailedJob) -> list[dict[str, Any]]:
    """Return the errors of failed attempts with their tracebacks as text, latest first."""
    failed = [(attempt, attempt.error) for attempt in job.attempts.all() if attempt.error]
    return [
        {
            "it": attempt,
            "code": error.get("code", ""),
            "exception": error.get("exception", ""),
            "message": str(error.get("message") or "")[:TEXT_SHOWN],
            "traceback": str(error.get("traceback") or "")[-TEXT_SHOWN:],
        }
        for attempt, error in failed[: -ERRORS_SHOWN - 1 : -1]
    ]


def present_placement(job: DetailedJob) -> dict[str, Any] | None:
    """Return why a job waits: the eligible workers, and the filters that exclude the others.

    None if it does not wait.
    """
    if job.state != JobState.PENDING:
        return None
    try:
        candidates = job_placement(job.pk, None)
    except JobNotWaiting:  # the job was claimed since it was read
        return None
    job.flags = candidates["flags"]
    ruled_out = [row for row in candidates["ruled_out"] if row["filter"] != "type"]
    waiting_for, hold = candidates["waiting_for"] or {}, candidates["hold"]
    if hold is not None:
        job.parked_by = {"hold": hold["id"]}
    begins = waiting_for.get("until") if hold is None else None
    return {
        "eligible": candidates["eligible"][:PLACES_SHOWN],
        "ruled_out": ruled_out[:PLACES_SHOWN],
        "counts": Counter(row["filter"] for row in ruled_out).most_common(),
        "left_out": max(0, len(ruled_out) - PLACES_SHOWN),
        "of_other_type": len(candidates["ruled_out"]) - len(ruled_out),
        "until": begins and time_until(begins, job.now),
        "stops_on": waiting_for.get("server"),
        "limited": waiting_for.get("limit"),
        "loop": waiting_for.get("step"),
        "hold": hold,
        "holds": [present_hold_in_json(hold, job.now)] if hold else [],
        "full": candidates["full"],
        "ahead": candidates["ahead"],
        "has_more_ahead": candidates["ahead"] == AHEAD_COUNTED,
        "given_up": None if candidates["fails_in"] is None else seconds_until(candidates["fails_in"], job.now),
        "expires": job.good_until and time_until(job.good_until, job.now),
    }


def build_lanes(job: DetailedJob, superseded: list[SupersededReport], doubt: str) -> JobChart:
    """Return the chart of a job's attempts."""
    attempts = list(job.attempts.all())
    start, end = drawn_period(job, superseded, job.now)
    signs = {attempt.server_id: SignsOfLife(attempt.server.heartbeat_interval) for attempt in attempts}
    own = {
        attempt.pk: OwnBeats(max(conf().claimer_heartbeat_interval, conf().runner_heartbeat_interval))
        for attempt in attempts
    }
    known: Iterable[Any] = ()
    if signs:
        stride = beat_resolution((end - start).total_seconds())
        known = signs_of_life(list(signs), start, end, stride, attempts=list(own))
    for of, what, at in known:
        (own[of].beats if what == "own" else signs[of].beats if what == "beat" else signs[of].losses).append(at)
    for attempt in attempts:
        own[attempt.pk].add_last(attempt.heartbeat_at)
    read_outages = partial(own_outages, least=3 * liveness_conf().heartbeat_interval)
    by_number = {attempt.number: own[attempt.pk] for attempt in attempts}
    return build_job_chart(job, attempts, superseded, signs, job.now, doubt, by_number, read_outages)
