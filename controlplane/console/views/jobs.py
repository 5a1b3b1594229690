"""The pages of jobs: all of them, and one with its attempts as lanes."""

import json
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from controlplane.agent.secret_values import mask
from controlplane.console.actions.jobs import DISMISS_ACTION, JOB_ACTIONS, RESUBMIT_AGAIN_ACTION
from controlplane.console.actions.servers import list_permitted_actions
from controlplane.console.charts.lanes import (
    Chart,
    OwnBeats,
    SignsOfLife,
    SupersededReport,
    beat_resolution,
    build_job_chart,
    drawn_period,
)
from controlplane.console.presenters.formatting import format_moment, format_number, time_since, time_until
from controlplane.console.presenters.job_outlook import describe_job_outlook
from controlplane.console.presenters.jobs import count_losses, describe_action, doubt_about, name_job, present_job
from controlplane.console.selectors.filters.jobs import JobFilter
from controlplane.console.selectors.listing import build_list_page, format_at_least, present_list_page
from controlplane.console.views.not_found import HOME, show_not_found
from controlplane.console.views.overview import format_estimate, present_job_counts
from controlplane.console.views.page import reached_namespaces, render_page, require_reader, sees, within_reach
from controlplane.core.durations import describe_duration, describe_exactly
from jobs.conf import conf
from jobs.errors import JobNotWaiting
from jobs.selectors.instance import job_counts
from jobs.selectors.job_details import job_details
from jobs.selectors.job_lists import job_counts_by_state, jobs_page
from jobs.selectors.jobs import DetailedJob, jobs_with_flags, jobs_without_content
from jobs.selectors.placement import job_placement
from jobs.selectors.servers import servers_with_held_attempts
from jobs.selectors.timeline import job_timeline
from jobs.states import AttemptState, Flag, JobState, Unmatched
from liveness.selectors.heartbeats import signs_of_life

JOBS_A_PAGE, TEXT_SHOWN = 50, 10_000
LINES_SHOWN = 200
PLACES_SHOWN = 50
OF_ONE_JOB = JOB_ACTIONS | RESUBMIT_AGAIN_ACTION


@require_reader("job")
def show_jobs(request: HttpRequest) -> HttpResponse:
    """Jobs, latest first, a page at a time; `?before=` an id goes on."""
    chosen = JobFilter(request.GET)
    rows = within_reach(request, jobs_without_content())
    page = partial(jobs_page, order=chosen.order)
    listing = build_list_page(request, chosen, rows, page, JOBS_A_PAGE)
    wider = chosen.without_state()
    figures: dict[str, Any]
    format_count: Callable[[int], str]
    if is_narrowed := bool(wider.chosen_values) or reached_namespaces(request) is not None:
        matching, floor = wider.match_in_scan_window(rows, None)
        figures = {"counts": job_counts_by_state(matching), "about": []}
        format_count = partial(format_at_least, floor=floor)
    else:
        figures = job_counts()
        format_count = format_estimate if figures["about"] else format_number
    counts = figures["counts"]
    total = sum(counts.values())
    shown = {
        "title": "Jobs",
        "trail": [HOME],
        "filter": chosen,
        "filters": "jobs",
        "by_state": present_job_counts(figures, chosen, format_count if is_narrowed else format_number),
        "total": format_count(total),
        "matching": format_count(
            counts.get(chosen.chosen_values["state"], 0) if "state" in chosen.chosen_values else total
        ),
        "any": total or chosen.chosen_values,
        "all_states": f"{reverse('instance:jobs')}?{wider.query}",
        **present_list_page(listing, chosen),
        "jobs": [present_job(job) for job in listing.rows],
        "actions": list_permitted_actions(request, JOB_ACTIONS),
        "folder": "jobs",
        "url": request.build_absolute_uri("/").rstrip("/"),
    }
    if {"q", "server"} <= chosen.chosen_values.keys():
        shown["tab_counts"] = []  # to search on a server takes as many queries as a page may have
    return render_page(request, "jobs", shown)


@require_reader("job")
def show_job(request: HttpRequest, job: UUID) -> HttpResponse:
    """One job: its attempts as lanes, the same as a table, why it waits, and what went in and came out."""
    details: Any = job_details(job, LINES_SHOWN)
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
        "title": name_job(details),
        "trail": [HOME, ("Jobs", "instance:jobs")],
        "job": details,
        "what": describe_action(details.action),
        "made": time_since(details.created_at, details.now),
        "finished": details.finished_at and time_since(details.finished_at, details.now),
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
        "placement": placed,
        "holder": holder,
        "actions": [
            *(("jobs", action) for action in list_permitted_actions(request, OF_ONE_JOB, details)),
            *(("quarantine", action) for action in list_permitted_actions(request, DISMISS_ACTION, details)),
        ],
        "lines": details.log or [],
        "lines_shown": LINES_SHOWN,
        "texts": [
            (name, format_json(value), count_left_out(value))
            for name, value in (
                ("Error", leave_out_shown_fields(details.error)),
                ("Output", details.output), ("Checkpoint", details.checkpoint),
                ("Action", mask(details.action)), ("Payload", mask(details.payload)),
            )
            if value is not None
        ],
    }  # fmt: skip
    return render_page(request, "job", shown)


def present_timeline(job: DetailedJob) -> list[tuple[dict[str, Any], str, str | None, str | None]]:
    """What happened to a job, each with its moment and how long after what was before it; and of attempts that ran the
    last heartbeat of their own."""
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


def describe_times(job: DetailedJob) -> str:
    """How long a job waited until its code first began, and for how long it ran in all; what still counts is said as
    what it is."""
    spans = [
        (attempt.started_at, attempt.finished_at or job.now) for attempt in job.attempts.all() if attempt.started_at
    ]
    if not spans:
        return ""
    waited = (spans[0][0] - job.created_at).total_seconds()
    is_running = any(attempt.started_at and not attempt.finished_at for attempt in job.attempts.all())
    ran = sum((end - start).total_seconds() for start, end in spans)
    times = f"Waited {describe_exactly(waited)}, {'has run for' if is_running else 'ran'} {describe_exactly(ran)}"
    if job.state != JobState.PENDING:
        return times
    return f"{times}, has waited again for {describe_exactly((job.now - spans[-1][1]).total_seconds())}"


ERRORS_SHOWN = 10
SHOWN_FIELDS = ("code", "message", "exception", "traceback")


def present_errors(job: DetailedJob) -> list[dict[str, Any]]:
    """The errors that attempts ended with, the last first, with their tracebacks as text."""
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


def leave_out_shown_fields(error: dict[str, Any] | None) -> dict[str, Any] | None:
    """What an error says beside what the page shows of it as text."""
    return {name: value for name, value in (error or {}).items() if name not in SHOWN_FIELDS} or None


def present_action_events(row: Any) -> list[tuple[Any, str]]:
    """What operators and clients did to a job or an execution, each with its moment."""
    return [(event, format_moment(datetime.fromisoformat(event["at"]), row.now)) for event in row.action_events]


def describe_give_up(job: DetailedJob) -> str | None:
    """After how long a job that nobody may run is FAILED."""
    after = conf().unmatched_after
    return None if after is None or job.unmatched == Unmatched.WAIT or job.flags else describe_duration(after)


def present_placement(job: DetailedJob) -> dict[str, Any] | None:
    """Why a waiting job waits: who may have it, and what rules out the others that run such jobs at all."""
    if job.state != JobState.PENDING:
        return None
    try:
        candidates = job_placement(job.pk, None)
    except JobNotWaiting:  # it was claimed meanwhile
        return None
    job.flags = candidates["flags"]
    ruled_out = [row for row in candidates["ruled_out"] if row["filter"] != "type"]
    begins = candidates["waiting_for"] and candidates["waiting_for"]["until"]
    return {
        "eligible": candidates["eligible"][:PLACES_SHOWN],
        "ruled_out": ruled_out[:PLACES_SHOWN],
        "counts": Counter(row["filter"] for row in ruled_out).most_common(),
        "left_out": max(0, len(ruled_out) - PLACES_SHOWN),
        "of_other_type": len(candidates["ruled_out"]) - len(ruled_out),
        "until": begins and time_until(begins, job.now),
        "stops_on": candidates["waiting_for"] and candidates["waiting_for"].get("server"),
        "given_up": describe_give_up(job) if not candidates["eligible"] else None,
        "expires": job.good_until and time_until(job.good_until, job.now),
    }


def build_lanes(job: DetailedJob, superseded: list[SupersededReport], doubt: str) -> Chart:
    """The chart of a job's attempts."""
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
    by_number = {attempt.number: own[attempt.pk] for attempt in attempts}
    return build_job_chart(job, attempts, superseded, signs, job.now, doubt, by_number)


def format_json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)[:TEXT_SHOWN]


def count_left_out(value: object) -> int:
    """How many characters were left out."""
    return max(0, len(json.dumps(value, indent=2, ensure_ascii=False)) - TEXT_SHOWN)
