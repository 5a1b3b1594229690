"""The pages of jobs: all of them, and one with its attempts as lanes."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from django.http import HttpResponse, StreamingHttpResponse
from django.urls import reverse

from controlplane.console.actions.jobs import DISMISS, JOB_ACTIONS
from controlplane.console.actions.servers import offered
from controlplane.console.charts.lanes import Chart, Late, Signs, chart, extent, stride
from controlplane.console.presenters.jobs import FLAGS_SAID, action_said, job_told
from controlplane.console.presenters.words import ago, duration, moment, until
from controlplane.console.selectors.filters import JobFilter, as_uuid
from controlplane.console.selectors.listing import at_least, listed
from controlplane.console.views.not_found import HOME, unknown
from controlplane.console.views.overview import about, counted
from controlplane.console.views.page import HtmxRequest, for_readers, page
from jobs import selectors
from jobs.conf import conf
from jobs.errors import JobNotWaiting
from jobs.states import Flag, JobState, Unmatched
from liveness import selectors as liveness

JOBS_A_PAGE, TEXT_SHOWN = 50, 10_000
LINES_SHOWN, LINES_READ = 200, 1000
PLACES_SHOWN = 50


@for_readers("job")
def jobs(request: HtmxRequest) -> HttpResponse:
    """Jobs, latest first, a page at a time; `?before=` an id goes on."""
    chosen = JobFilter(request.GET)
    before = as_uuid(request.GET.get("before"))
    found = listed(chosen, selectors.bare_jobs(), selectors.jobs_page, before, JOBS_A_PAGE)
    wider = chosen.without_state()
    figures: dict[str, Any]
    say: Callable[[int], str]
    if wider.chosen:
        matching, floor = wider.within_reach(selectors.bare_jobs(), None)
        figures = {"counts": selectors.counts_by_state(matching), "about": []}
        say = partial(at_least, floor=floor)
    else:
        figures = selectors.figures()
        say = about if figures["about"] else str
    counts = figures["counts"]
    total = sum(counts.values())
    shown = {
        "title": "Jobs",
        "trail": [HOME],
        "filter": chosen,
        "filters": "jobs",
        "by_state": counted(figures, chosen, say if wider.chosen else str),
        "total": say(total),
        "matching": say(counts.get(chosen.chosen["state"], 0) if "state" in chosen.chosen else total),
        "any": total or chosen.chosen,
        "all_states": f"{reverse('instance:jobs')}?{wider.query}",
        "before": before,
        "older": found.older,
        "searched": found.searched,
        "jobs": [job_told(job) for job in found.rows],
        "actions": offered(request, JOB_ACTIONS),
        "folder": "jobs",
        "url": request.build_absolute_uri("/").rstrip("/"),
    }
    return page(request, "jobs", shown)


@for_readers("job")
def job(request: HtmxRequest, job: UUID) -> HttpResponse:
    """One job: its attempts as lanes, the same as a table, why it waits, and what went in and came out."""
    found: Any = selectors.told(job, LINES_SHOWN)
    if found is None:
        return unknown(request, "job")
    placed = placement(found)
    if placed is None:
        selectors.with_flags([found])
    late = [Late(row["number"], datetime.fromisoformat(row["at"]), row["event"], row["reason"]) for row in found.late]
    shown = {
        "title": f"Job {str(found.pk)[-12:]}",
        "trail": [HOME, ("Jobs", "instance:jobs")],
        "job": found,
        "what": action_said(found.action),
        "made": ago(found.created_at, found.now),
        "finished": found.finished_at and ago(found.finished_at, found.now),
        "chart": lanes(found, late),
        "timeline": [(entry, moment(entry["at"], found.now)) for entry in selectors.timeline(found)],
        "reports": [(row, moment(report.at, found.now)) for row, report in zip(found.late, late, strict=True)],
        "flags": [FLAGS_SAID[Flag(flag)][0] for flag in found.flags],
        "placement": placed,
        "holder": next((attempt for attempt in found.attempts.all() if attempt.finished_at is None), None),
        "actions": [
            *(("jobs", action) for action in offered(request, JOB_ACTIONS, found)),
            *(("quarantine", action) for action in offered(request, DISMISS, found)),
        ],
        "lines": found.log or [],
        "lines_shown": LINES_SHOWN,
        "texts": [
            (name, text(value), size(value))
            for name, value in (
                ("Error", found.error), ("Output", found.output), ("Action", found.action), ("Payload", found.payload),
            )
            if value is not None
        ],
    }  # fmt: skip
    return page(request, "job", shown)


def given_up(job: Any) -> str | None:
    """After how long a job that nobody may run is FAILED."""
    after = conf().unmatched_after
    return None if after is None or job.unmatched == Unmatched.WAIT or job.flags else duration(after)


def placement(job: Any) -> dict[str, Any] | None:
    """Why a waiting job waits: who may have it, and what rules out the others that run such jobs at all."""
    if job.state != JobState.PENDING:
        return None
    try:
        found = selectors.placement(job.pk, None)
    except JobNotWaiting:  # it was claimed meanwhile
        return None
    job.flags = found["flags"]
    ruled_out = [row for row in found["ruled_out"] if row["filter"] != "type"]
    begins = found["waiting_for"] and found["waiting_for"]["until"]
    return {
        "eligible": found["eligible"][:PLACES_SHOWN],
        "ruled_out": ruled_out[:PLACES_SHOWN],
        "counts": Counter(row["filter"] for row in ruled_out).most_common(),
        "left_out": max(0, len(ruled_out) - PLACES_SHOWN),
        "of_other_type": len(found["ruled_out"]) - len(ruled_out),
        "until": begins and until(begins, job.now),
        "stops_on": found["waiting_for"] and found["waiting_for"].get("server"),
        "given_up": given_up(job) if not found["eligible"] else None,
        "expires": job.good_until and until(job.good_until, job.now),
    }


@for_readers("job")
def job_logs(request: HtmxRequest, job: UUID) -> Any:
    """All that a job's code wrote, as a text."""
    if not selectors.bare_jobs().filter(pk=job).exists():
        return unknown(request, "job")
    return StreamingHttpResponse(written(job), content_type="text/plain; charset=utf-8")


def written(job: UUID) -> Iterator[str]:
    """Every line of a job: when, of which attempt, from which stream."""
    after = 0
    while rows := selectors.log_page(job, after, LINES_READ):
        for row in rows:
            stream = {"STDOUT": "out", "STDERR": "err"}[row.stream]
            yield f"{row.at:%Y-%m-%dT%H:%M:%S.%fZ} #{row.attempt} {stream} {row.line}\n"
        after = rows[-1].id


def lanes(job: Any, late: list[Late]) -> Chart:
    """The chart of a job's attempts."""
    attempts = list(job.attempts.all())
    start, end = extent(job, late, job.now)
    signs = {attempt.server_id: Signs(attempt.server.heartbeat_interval) for attempt in attempts}
    known: Iterable[Any] = ()
    if signs:
        known = liveness.signs(list(signs), start, end, stride((end - start).total_seconds()))
    for server, what, at in known:
        (signs[server].beats if what == "beat" else signs[server].lost).append(at)
    return chart(job, attempts, late, signs, job.now)


def text(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)[:TEXT_SHOWN]


def size(value: Any) -> int:
    """How many characters were left out."""
    return max(0, len(json.dumps(value, indent=2, ensure_ascii=False)) - TEXT_SHOWN)
