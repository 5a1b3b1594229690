"""The Instance pages: what is there, what is held, what happened. Read only; `/admin/instance/`."""

import json
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.http import HttpResponse, StreamingHttpResponse
from django.urls import path, reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from jobs import selectors
from jobs.lanes import Chart, Late, Signs, chart, extent, stride
from jobs.states import JobState
from liveness import selectors as liveness
from liveness import states
from liveness.conf import conf
from liveness.pages import HtmxRequest, age, ago, concern, drawn, for_readers, jobs_said, moment, outlook, page, strip
from liveness.states import ServerState, ServerType

SERVERS_SHOWN, JOBS_A_PAGE, TEXT_SHOWN = 100, 100, 10_000
LINES_SHOWN, LINES_READ = 200, 1000
HOME = ("Instance", "instance:overview")


@for_readers
def overview(request: HtmxRequest) -> HttpResponse:
    """What is there, in one sentence and in full."""
    figures = selectors.figures()
    by_type = list(liveness.present_by_type())
    servers = list(selectors.instance(SERVERS_SHOWN))
    present = sum(row["present"] for row in by_type)
    shown = {
        "title": "Instance",
        "verdict": verdict(by_type, servers, figures),
        "check": check_told(figures["check_age"]),
        "by_type": by_type,
        "by_state": counted(figures),
        "waiting": None if figures["waiting"] is None else age(figures["waiting"]),
        "servers": [drawn(server) for server in servers if server.state != ServerState.INACTIVE],
        "ended": [drawn(server) for server in servers if server.state == ServerState.INACTIVE],
        "left_out": max(0, present - SERVERS_SHOWN),
        "activity": [(row, ago(row.at, figures["now"])) for row in selectors.activity()],
        "has_jobs": bool(figures["counts"]),
        "has_workers": any(server.type == ServerType.WORKER for server in servers),
        "brakes": figures["brakes"] or [],
        "maintenance": figures["maintenance"],
        "witnessed": figures["witnessed"],
        "url": request.build_absolute_uri("/").rstrip("/"),
    }
    return page(request, "overview", shown)


def check_told(seconds: float | None) -> dict[str, Any]:
    """The age of the last liveness check, and whether it is too old."""
    late = seconds is None or seconds > 3 * conf().interval
    return {"age": None if seconds is None else age(seconds), "late": late, "interval": f"{conf().interval:g}"}


def verdict(by_type: list[dict[str, Any]], servers: list[Any], figures: dict[str, Any]) -> dict[str, Any]:
    """How it stands, in plain words, what gets worse next first; and how loud to say it."""
    if not servers:
        return {"tone": "empty", "said": [SafeString("No server has registered yet.")]}
    well, present = sum(row["well"] for row in by_type), sum(row["present"] for row in by_type)
    servers_said = "server" if present == 1 else "servers"
    head = f"{well} of {present} {servers_said} alive." if present else "No server is running: all have ended."
    said = [format_html("{}", head)]
    check = check_told(figures["check_age"])
    if check["age"] is None:
        said.append(SafeString("The liveness check has never run: nobody notices a lost server."))
    elif check["late"]:
        said.append(format_html("The last liveness check was {} ago: nobody notices a lost server.", check["age"]))
    worries = sorted(filter(None, map(concern, servers)), key=lambda worry: worry[0])
    if worries:
        said.append(format_html("{}.", format_html_join("; ", "{}", ((text,) for _, text in worries[:3]))))
    if len(worries) > 3:
        said.append(format_html("{} more need attention.", len(worries) - 3))
    waits = figures["counts"].get(JobState.PENDING, 0)
    idle = waits and len(servers) < SERVERS_SHOWN and not any(map(takes_work, servers))
    if idle:
        verb = "waits" if waits == 1 else "wait"
        said.append(format_html("{} {} and no worker takes work.", jobs_said(waits), verb))
    if len(said) == 1 and present:
        said.append(SafeString("Every heartbeat is fresh."))
    lost = any(server.state in (ServerState.DISCONNECTED, ServerState.ERROR) for server in servers)
    bad = check["late"] or idle or lost
    return {"tone": "bad" if bad else "worry" if worries or not present else "well", "said": said}


def takes_work(server: Any) -> bool:
    return (
        server.type == ServerType.WORKER
        and server.state == ServerState.RUNNING
        and server.fresh
        and server.cordoned_by is None
    )


def counted(figures: dict[str, Any], chosen: str | None = None) -> list[dict[str, Any]]:
    """Each state of jobs with its number, as a link that filters by it."""
    at = reverse("instance:jobs")
    return [
        {
            "state": state,
            "count": (count := figures["counts"].get(state, 0)),
            "said": about(count) if state in figures["about"] else f"{count}",
            "url": f"{at}?state={state}",
            "chosen": state == chosen,
        }
        for state in JobState
    ]


def about(count: int) -> str:
    """A number of which no more is known than its first two digits."""
    return f"≈ {float(f'{count:.2g}'):,.0f}"


@for_readers
def server(request: HtmxRequest, server: UUID) -> HttpResponse:
    """One server: what it is, what happens to it next and why, what it holds and what it did."""
    found: Any = selectors.holders().filter(pk=server).first()
    if found is None:
        return unknown(request, "server")
    beats = list(liveness.beats_of(server)[:60])
    expected = found.silence if found.state in states.BEATING else None
    attempts = list(selectors.attempts_of(server))
    shown = {
        "title": found.name,
        "trail": [HOME],
        "server": drawn(found),
        "outlook": outlook(found),
        "check": check_told(found.check_age),
        "cells": strip(beats, found.heartbeat_interval, expected),
        "events": [(row, moment(row.at)) for row in reversed(liveness.events_of(server).order_by("-id")[:50])],
        "created": moment(found.created_at),
        "held": [told(attempt, found.now) for attempt in attempts if attempt.finished_at is None],
        "past": [told(attempt, found.now) for attempt in attempts if attempt.finished_at is not None],
    }
    return page(request, "server", shown)


def told(attempt: Any, now: Any) -> dict[str, Any]:
    """An attempt as the server's page lists it."""
    return {
        "it": attempt,
        "what": action_said(attempt.job.action),
        "claimed": ago(attempt.claimed_at, now),
        "finished": attempt.finished_at and ago(attempt.finished_at, now),
    }


@for_readers
def jobs(request: HtmxRequest) -> HttpResponse:
    """Jobs, latest first, a page at a time; `?state=` filters, `?before=` an id goes on."""
    state = request.GET.get("state")
    state = state if state in list(JobState) else None
    before = as_uuid(request.GET.get("before"))
    figures = selectors.figures()
    rows: list[Any] = list(selectors.jobs_page(state, before, JOBS_A_PAGE + 1))
    total = sum(figures["counts"].values())
    older = {"state": state, "before": rows[JOBS_A_PAGE - 1].pk} if len(rows) > JOBS_A_PAGE else None
    shown = {
        "title": "Jobs",
        "trail": [HOME],
        "by_state": counted(figures, state),
        "total": about(total) if figures["about"] else total,
        "state": state,
        "before": before,
        "older": older and "?" + urlencode({key: value for key, value in older.items() if value}),
        "jobs": [
            {"it": job, "what": action_said(job.action), "made": ago(job.created_at, job.now)}
            | {"finished": job.finished_at and ago(job.finished_at, job.now)}
            for job in rows[:JOBS_A_PAGE]
        ],
        "url": request.build_absolute_uri("/").rstrip("/"),
    }
    return page(request, "jobs", shown)


@for_readers
def job(request: HtmxRequest, job: UUID) -> HttpResponse:
    """One job: its attempts as lanes, the same as a table, and what went in and came out."""
    found: Any = selectors.with_log(selectors.jobs_now(), LINES_SHOWN).filter(pk=job).first()
    if found is None:
        return unknown(request, "job")
    numbers = {attempt.pk: attempt for attempt in found.attempts.all()}
    reports = [(report, numbers[report.attempt_id], moment(report.at)) for report in found.late_reports.all()]
    shown = {
        "title": f"Job {str(found.pk)[-12:]}",
        "trail": [HOME, ("Jobs", "instance:jobs")],
        "job": found,
        "what": action_said(found.action),
        "made": ago(found.created_at, found.now),
        "finished": found.finished_at and ago(found.finished_at, found.now),
        "chart": lanes(found),
        "timeline": [(entry, moment(entry["at"])) for entry in selectors.timeline(found)],
        "reports": reports,
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


@for_readers
def job_logs(request: HtmxRequest, job: UUID) -> Any:
    """All that a job's code wrote, as a text."""
    if not selectors.jobs_now().filter(pk=job).exists():
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


def lanes(job: Any) -> Chart:
    """The chart of a job's attempts."""
    attempts = list(job.attempts.all())
    numbers = {attempt.pk: attempt.number for attempt in attempts}
    late = [Late(numbers[row.attempt_id], row.at, row.event, row.reason) for row in job.late_reports.all()]
    start, end = extent(job, late, job.now)
    signs = {attempt.server_id: Signs(attempt.server.heartbeat_interval) for attempt in attempts}
    known: Iterable[Any] = ()
    if signs:
        known = liveness.signs(list(signs), start, end, stride((end - start).total_seconds()))
    for server, what, at in known:
        (signs[server].beats if what == "beat" else signs[server].lost).append(at)
    return chart(job, attempts, late, signs, job.now)


def action_said(action: dict[str, Any]) -> str:
    """What a job does, in a few words."""
    what = action.get("command") or action.get("path") or action.get("name") or ""
    words = " ".join(what) if isinstance(what, list) else str(what)
    return f"{action.get('type')}: {words}"[:80]


def text(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)[:TEXT_SHOWN]


def size(value: Any) -> int:
    """How many characters were left out."""
    return max(0, len(json.dumps(value, indent=2, ensure_ascii=False)) - TEXT_SHOWN)


def as_uuid(said: str | None) -> UUID | None:
    try:
        return UUID(said) if said else None
    except ValueError:
        return None


def unknown(request: HtmxRequest, what: str) -> HttpResponse:
    """Nothing has this id, or not any more."""
    return page(request, "unknown", {"title": f"Unknown {what}", "trail": [HOME], "what": what}, status=404)


app_name = "instance"
urlpatterns = [
    path("", overview, name="overview"),
    path("servers/<uuid:server>/", server, name="server"),
    path("jobs/", jobs, name="jobs"),
    path("jobs/<uuid:job>/", job, name="job"),
    path("jobs/<uuid:job>/logs/", job_logs, name="job_logs"),
]
