"""The first page: what is there, what needs attention, what happened; in one sentence and in full."""

from collections.abc import Callable
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from controlplane.console.charts.heartbeats import BEATS_SHOWN, build_strip
from controlplane.console.presenters.formatting import count_jobs, seconds_since, time_since
from controlplane.console.presenters.outlook import describe_concern, present_server, type_words
from controlplane.console.selectors.filters import JobFilter
from controlplane.console.selectors.recent_activity import list_activity
from controlplane.console.views.page import render_page, require_reader, viewable
from jobs import selectors, server_selectors
from jobs.states import Flag, JobState
from liveness import selectors as liveness
from liveness import states
from liveness.conf import conf
from liveness.selectors import TimedServer
from liveness.states import ServerState, ServerType

SERVERS_SHOWN, ENTRIES_SHOWN = 12, 12
"""Rows, those that need attention first: of the others the tiles tell the number, and the page of servers all."""


@require_reader()
def show_overview(request: HttpRequest) -> HttpResponse:
    """What is there, in one sentence and in full, of what its reader may view."""
    sees = viewable(request.user)
    figures = selectors.instance_figures()
    if "job" not in sees:
        figures |= {"counts": {}, "flags": {}, "waiting": None}
    shown = {
        "title": "Instance",
        "check": present_check(figures["check_age"], figures["now"]),
        "by_state": present_job_counts(figures),
        "waiting": None if figures["waiting"] is None else seconds_since(figures["waiting"], figures["now"]),
        "activity": [(row, time_since(row.at, figures["now"])) for row in list_activity(ENTRIES_SHOWN, sees=sees)[0]],
        "has_jobs": bool(figures["counts"]),
        "brakes": figures["brakes"] or [],
        "flags": [present_flag(flag, count) for flag, count in figures["flags"].items() if count],
        "maintenance": figures["maintenance"],
        "witnessed": figures["witnessed"],
        "rows_left_out": figures["rows_left_out"] or [],
        "url": request.build_absolute_uri("/").rstrip("/"),
        **(of_servers(figures) if "server" in sees else {}),
    }
    return render_page(request, "overview", shown)


def of_servers(figures: dict[str, Any]) -> dict[str, Any]:
    """What the first page tells of servers: the verdict, their number by type, those that need attention and others."""
    by_type = list(liveness.server_counts_by_type())
    servers = list(liveness.servers_with_beats(server_selectors.instance_servers(SERVERS_SHOWN, ended=1), BEATS_SHOWN))
    present = sum(row["present"] for row in by_type)
    running = [server for server in servers if server.state != ServerState.INACTIVE]
    worries = {server.pk: worry for server in running if (worry := describe_concern(server))}
    worried = [server for server in running if server.pk in worries]
    needing = sum(row["present"] - row["well"] for row in by_type)
    return {
        "verdict": build_verdict(by_type, servers, list(worries.values()), figures),
        "by_type": [
            {**row, "words": type_words(row["type"], own=row["is_own"]), "url": build_servers_url(row)}
            for row in by_type
        ],
        "attention": [present_listed_server(server) for server in worried],
        "attention_left_out": max(0, needing - len(worried)),
        "servers": [present_listed_server(server) for server in running if server.pk not in worries],
        "present": present,
        "left_out": present - sum(server.state not in states.ENDED for server in running),
        "has_workers": any(row["type"] == ServerType.WORKER for row in [*by_type, *map(vars, servers)]),
    }


def present_flag(flag: str, count: int) -> dict[str, Any]:
    """How many jobs stand still, why, and where to find them."""
    state = JobState.RUNNING if flag == Flag.HELD_BY_LOST_SERVER else JobState.PENDING
    jobs = f"{count}{'+' if count >= selectors.COUNT_LIMIT else ''} job{'' if count == 1 else 's'}"
    return {
        "flag": flag,
        "jobs": jobs,
        "meaning": Flag(flag).meaning,
        "url": f"{reverse('instance:jobs')}?{urlencode({'state': state})}",
    }


def present_listed_server(server: TimedServer) -> dict[str, Any]:
    """A server with its `beats` as the tables show it."""
    return {**present_server(server), "strip": build_strip(server, server.beats)}


def build_servers_url(row: dict[str, Any]) -> str:
    return f"{reverse('instance:servers')}?{urlencode({'cluster': row['cluster'], 'type': row['type']})}"


def present_check(seconds: float | None, now: datetime) -> dict[str, Any]:
    """The age of the last liveness check, and whether it is too old."""
    return {
        "age": None if seconds is None else seconds_since(seconds, now),
        "is_overdue": liveness.is_check_late(seconds),
        "interval": f"{conf().interval:g}",
    }


def build_verdict(
    by_type: list[dict[str, Any]], servers: list[TimedServer], worries: list[SafeString], figures: dict[str, Any]
) -> dict[str, Any]:
    """How it stands, in plain words, what gets worse next first; and how loud to say it."""
    if not servers:
        return {"tone": "empty", "sentences": [SafeString("No server has registered yet.")]}
    well, present = sum(row["well"] for row in by_type), sum(row["present"] for row in by_type)
    noun = "server" if present == 1 else "servers"
    head = f"{well} of {present} {noun} alive." if present else "No server is running: all have ended."
    sentences = [format_html("{}", head)]
    check = present_check(figures["check_age"], figures["now"])
    if check["age"] is None:
        sentences.append(SafeString("The liveness check has never run: lost servers go unnoticed."))
    elif check["is_overdue"]:
        sentences.append(format_html("The last liveness check was {} ago: lost servers go unnoticed.", check["age"]))
    if worries:
        sentences.append(format_html("{}.", format_html_join("; ", "{}", ((text,) for text in worries[:3]))))
    if (more := present - well - len(worries[:3])) > 0:
        sentences.append(format_html("{} more {} attention.", more, "needs" if more == 1 else "need"))
    waits = figures["counts"].get(JobState.PENDING, 0)
    idle = waits and not any(row["takes_work"] for row in by_type if row["type"] == ServerType.WORKER)
    if idle:
        verb = "waits" if waits == 1 else "wait"
        sentences.append(format_html("{} {} and no worker takes work.", count_jobs(waits), verb))
    if len(sentences) == 1 and present:
        sentences.append(SafeString("Every heartbeat is fresh."))
    bad = check["is_overdue"] or idle or any(row["lost"] for row in by_type)
    return {"tone": "bad" if bad else "worry" if worries or not present else "well", "sentences": sentences}


def present_job_counts(
    figures: dict[str, Any], chosen: JobFilter | None = None, format_count: Callable[[int], str] = str
) -> list[dict[str, Any]]:
    """Each state of jobs with its number, as a link that filters by it and keeps what else is filtered by."""
    at, others = reverse("instance:jobs"), {**chosen.chosen_values} if chosen else {}
    present = others.pop("state", None)
    return [
        {
            "state": state,
            "count": (count := figures["counts"].get(state, 0)),
            "figure": format_estimate(count) if state in figures["about"] else format_count(count),
            "url": f"{at}?{urlencode({**others, 'state': state})}",
            "chosen": state == present,
        }
        for state in JobState
    ]


def format_estimate(count: int) -> str:
    """A number of which no more is known than its first two digits."""
    return f"≈ {float(f'{count:.2g}'):,.0f}"
