"""The first page: what is there, what needs attention, what happened; in one sentence and in full."""

from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from controlplane.console.charts.heartbeats import BEATS_SHOWN, build_strip
from controlplane.console.presenters.clauses import present_verdict
from controlplane.console.presenters.formatting import format_number, seconds_since, time_since
from controlplane.console.presenters.maintenance import present_maintenance
from controlplane.console.presenters.outlook import present_server, type_words
from controlplane.console.selectors.filters.jobs import JobFilter
from controlplane.console.selectors.filters.servers import ScopeFilter
from controlplane.console.selectors.recent_activity import list_activity
from controlplane.console.views.history import chosen_window, present_charts
from controlplane.console.views.page import (
    list_tabs,
    reached_namespaces,
    render_page,
    require_reader,
    show_not_found,
    viewable,
)
from controlplane.core.composed import Composed, compose_query
from jobs import verdict
from jobs.selectors.history import build_history
from jobs.selectors.instance import instance_figures
from jobs.selectors.servers import instance_servers
from jobs.states import JobState
from liveness import states
from liveness.conf import LivenessSettings, conf
from liveness.models import Server
from liveness.selectors.clock import is_check_late
from liveness.selectors.clusters import is_known_cluster
from liveness.selectors.counts import server_counts_by_type
from liveness.selectors.heartbeats import servers_with_beats
from liveness.selectors.namespaces import reaches_instance
from liveness.selectors.servers import TimedServer
from liveness.states import ServerState, ServerType

SERVERS_SHOWN, ENTRIES_SHOWN = 12, 12
"""Rows, those that need attention first: of the others the tiles tell the number, and the page of servers all."""


@require_reader()
def show_overview(request: HttpRequest) -> HttpResponse:
    """What is there, in one sentence and in full, of what its reader may view."""
    if not reaches_instance(reached_namespaces(request)):
        return redirect(f"instance:{list_tabs(request)[0]}")
    sees = viewable(request.user)
    window, chosen = chosen_window(request), ScopeFilter(request.GET)
    cluster = chosen.cluster_name
    of_servers = read_servers(cluster) if "server" in sees else None
    # Where servers of it are there, nothing more is asked.
    if cluster and not (of_servers and of_servers[0]) and not is_known_cluster(cluster):
        return show_not_found(request, "cluster", "overview")
    reached = reached_namespaces(request)
    figures = instance_figures(window if "job" in sees else None, cluster, counts_tabs=True, namespaces=reached)
    if "job" not in sees:
        figures |= {"counts": {}, "flags": {}, "flagged_tags": None, "to_be_failed": None, "waiting": None}
    by_type, servers = of_servers or (None, [])
    known = by_type is None or servers
    clusters = sorted({row["cluster"] for row in by_type or []})
    built = verdict.build_verdict(figures, by_type, servers, tells_of_jobs="job" in sees)
    recent, _ = list_activity(ENTRIES_SHOWN, cluster=cluster, sees=sees)
    shown = {
        "title": f"Cluster {cluster}" if cluster else "Instance",
        "tab_counts": figures["tabs"],
        "cluster": cluster,
        "verdict": present_verdict(built, figures["now"], links_servers="server" in sees) if known else NOTHING_YET,
        "check": present_check(figures["check_age"], figures["now"]),
        "by_state": present_open_jobs(figures) if cluster else present_job_counts(figures),
        "waiting": None if figures["waiting"] is None else seconds_since(figures["waiting"], figures["now"]),
        "activity": [(row, time_since(row.at, figures["now"])) for row in recent],
        "has_jobs": bool(figures["counts"]) or bool(cluster),
        "brakes": figures["brakes"],
        "maintenances": [present_maintenance(row, figures["now"]) for row in figures["maintenances"]],
        "witnessed": figures["witnessed"],
        "rows_left_out": figures["rows_left_out"] or [],
        "url": request.build_absolute_uri("/").rstrip("/"),
        **({"history": present_charts(build_history(window, figures["history"]), cluster)} if "job" in sees else {}),
        **(present_servers(*of_servers) if of_servers else {}),
        **({"filter": chosen, "choices": {"cluster": clusters}} if cluster or len(clusters) > 1 else {}),
    }
    return render_page(request, "overview", shown)


NOTHING_YET = {"tone": "empty", "sentences": ["No server has registered yet."]}


def read_servers(cluster: str) -> tuple[list[dict[str, Any]], list[TimedServer]]:
    """How many servers there are of which type, and those that the first page shows; of one cluster or of all."""
    shown: Any = Server.objects.raw(*compose_shown_servers(cluster, conf()))
    return server_counts_by_type(cluster), list(shown)


@lru_cache(maxsize=64)
def compose_shown_servers(cluster: str, settings: LivenessSettings) -> Composed:
    """Those that the first page shows, with their `beats`; by these settings."""
    return compose_query(servers_with_beats(instance_servers(SERVERS_SHOWN, ended=1, cluster=cluster), BEATS_SHOWN))


def present_servers(by_type: list[dict[str, Any]], servers: list[TimedServer]) -> dict[str, Any]:
    """What the first page shows of servers: their number by type, those that need attention and others."""
    present = sum(row["present"] for row in by_type)
    running = [server for server in servers if server.state != ServerState.INACTIVE]
    worried = [server for server in running if server.needs_attention]
    needing = sum(row["present"] - row["well"] for row in by_type)
    return {
        "by_type": [
            {**row, "words": type_words(row["type"], own=row["is_own"]), "url": build_servers_url(row)}
            for row in by_type
        ],
        "attention": [present_listed_server(server) for server in worried],
        "attention_left_out": max(0, needing - len(worried)),
        "servers": [present_listed_server(server) for server in running if not server.needs_attention],
        "present": present,
        "left_out": present - sum(server.state not in states.ENDED for server in running),
        "has_workers": any(row["type"] == ServerType.WORKER for row in [*by_type, *map(vars, servers)]),
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
        "is_overdue": is_check_late(seconds),
        "interval": f"{conf().interval:g}",
    }


def present_job_counts(
    figures: dict[str, Any], chosen: JobFilter | None = None, format_count: Callable[[int], str] = format_number
) -> list[dict[str, Any]]:
    """Each state of jobs with its number, as a link that filters by it and keeps what else is filtered by."""
    at, others = reverse("instance:jobs"), {**chosen.texts} if chosen else {}
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


def present_open_jobs(figures: dict[str, Any]) -> list[dict[str, Any]]:
    """The same of one cluster: what its workers could take, and what its servers hold. No list is of these alone."""
    open_states = (JobState.PENDING, JobState.CLAIMED, JobState.RUNNING)
    counts = {state: figures["counts"].get(state, 0) for state in open_states}
    return [{"state": state, "count": count, "figure": format_number(count)} for state, count in counts.items()]


def format_estimate(count: int) -> str:
    """A number of which no more is known than its first two digits."""
    return f"≈ {float(f'{count:.2g}'):,.0f}"
