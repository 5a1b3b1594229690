"""Overview page: servers, jobs, concerns and recent events."""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import pairwise
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from controlplane.console.access import list_entries, viewable
from controlplane.console.charts.heartbeats import BEATS_SHOWN, build_strip
from controlplane.console.formatting import format_number, seconds_since, time_since
from controlplane.console.page import (
    YEAR,
    reached_namespaces,
    render_page,
    require_reader,
    show_not_found,
)
from controlplane.console.presenters.figures import present_job_figures, present_worker_figure
from controlplane.console.presenters.first_steps import HIDDEN, present_first_steps
from controlplane.console.presenters.fleet import present_fleet
from controlplane.console.presenters.maintenance import present_maintenance
from controlplane.console.presenters.outlook import present_server
from controlplane.console.presenters.verdict import NOTHING_YET, present_verdict
from controlplane.console.selectors.chart_period import chosen_window
from controlplane.console.selectors.filters.jobs import JobListFilter
from controlplane.console.selectors.filters.servers import ScopeFilter
from controlplane.console.selectors.recent_activity import list_activity
from controlplane.console.views.history import present_charts
from controlplane.core.composed import Composed, compose_query
from controlplane.core.database.replica import describe_replica
from jobs import verdict
from jobs.selectors.fleet import fleet_by_type
from jobs.selectors.history import build_history
from jobs.selectors.instance import instance_figures
from jobs.selectors.servers import instance_servers
from jobs.states import JobState
from liveness import states
from liveness.conf import LivenessSettings, conf
from liveness.models import Server
from liveness.selectors.clock import is_check_late
from liveness.selectors.clusters import is_known_cluster
from liveness.selectors.heartbeats import own_outages, servers_with_beats
from liveness.selectors.namespaces import reaches_instance
from liveness.selectors.servers import TimedServer
from liveness.sql.rows.selectors import OwnOutage
from liveness.states import ServerState

SERVERS_SHOWN, ENTRIES_SHOWN = 12, 12
"""Number of rows of servers and of events. The tiles show the totals; the servers page lists all servers."""


@require_reader()
def show_overview(request: HttpRequest) -> HttpResponse:
    """Show the overview, limited to what the user may view."""
    if not reaches_instance(reached_namespaces(request)):
        return redirect(f"instance:{list_entries(request.user)[0]}")
    sees = viewable(request.user)
    window, chosen = chosen_window(request.GET), ScopeFilter(request.GET)
    cluster = chosen.cluster_name
    of_servers = read_servers(cluster) if "server" in sees else None
    # A cluster with servers is known without another query.
    if cluster and not (of_servers and of_servers[0]) and not is_known_cluster(cluster):
        return show_not_found(request, "cluster", "overview")
    reached = reached_namespaces(request)
    figures = instance_figures(window if "job" in sees else None, cluster, counts_tabs=True, namespaces=reached)
    if "job" not in sees:
        figures |= {"counts": {}, "flags": {}, "flagged_tags": None, "to_be_failed": None, "waiting": None}
    by_type, servers = of_servers or (None, [])
    known = by_type is None or servers
    clusters = sorted({row["cluster"] for row in by_type or []})
    built = verdict.build_verdict(figures, by_type, servers, includes_jobs="job" in sees)
    recent, _ = list_activity(ENTRIES_SHOWN, cluster=cluster, sees=sees)
    now = figures["now"]
    history = build_history(window, figures["history"]) if "job" in sees else None
    shown = {
        "title": f"Cluster {cluster}" if cluster else "Overview",
        "tab_counts": figures["tabs"],
        "cluster": cluster,
        "verdict": present_verdict(
            built, now, figures["brakes"], cluster=cluster, links_servers="server" in sees,
            may_release=request.user.has_perm("liveness.release_brake"),
        ) if known else NOTHING_YET,
        "check": present_check(figures["check_age"], now),
        "figures": [
            *([present_worker_figure(by_type, history.points if history else (), cluster)] if by_type else ()),
            *(present_job_figures(figures, history, now, cluster) if history and figures["counts"] else ()),
        ],
        "activity": [(row, time_since(row.at, now)) for row in recent],
        "has_jobs": bool(figures["counts"]) or bool(cluster),
        "maintenances": [present_maintenance(row, now) for row in figures["maintenances"]],
        "witnessed": figures["witnessed"],
        "rows_left_out": figures["rows_left_out"] or [],
        "replica": describe_replica(),
        "url": request.build_absolute_uri("/").rstrip("/"),
        "first_steps": []
        if cluster or HIDDEN in request.COOKIES
        else present_first_steps(by_type, servers, figures, sees),
        **({"history": present_charts(history, cluster)} if history else {}),
        # The page of one cluster has no query left for outages.
        **(present_servers(*of_servers, () if cluster else read_outages(servers)) if of_servers else {}),
        **({"filter": chosen, "choices": {"cluster": clusters}} if cluster or len(clusters) > 1 else {}),
    }  # fmt: skip
    return render_page(request, "overview", shown)


@require_reader(methods=("POST",))
def hide_first_steps(request: HttpRequest) -> HttpResponse:
    """Hide the list of first steps in this browser (`POST first-steps/hide/`)."""
    answer = redirect("instance:overview")
    answer.set_cookie(HIDDEN, "1", max_age=YEAR, samesite="Lax", secure=request.is_secure(), httponly=True)
    return answer


def read_servers(cluster: str) -> tuple[list[dict[str, Any]], list[TimedServer]]:
    """Return the number of servers by type, and the servers that the overview lists. An empty cluster means all."""
    shown: Any = Server.objects.raw(*compose_shown_servers(cluster, conf()))
    return fleet_by_type(cluster), list(shown)


@lru_cache(maxsize=64)
def compose_shown_servers(cluster: str, settings: LivenessSettings) -> Composed:
    """Return the query for the servers that the overview lists, with their `beats`. Cached by the settings."""
    return compose_query(servers_with_beats(instance_servers(SERVERS_SHOWN, ended=1, cluster=cluster), BEATS_SHOWN))


def present_servers(
    by_type: list[dict[str, Any]], servers: list[TimedServer], outages: Sequence[OwnOutage]
) -> dict[str, Any]:
    """Return the servers of the overview: number by type, servers that need attention, and others."""
    present = sum(row["present"] for row in by_type)
    running = [server for server in servers if server.state != ServerState.INACTIVE]
    worried = [server for server in running if server.needs_attention]
    needing = sum(row["silent_ones"] + row["lost"] + row["ending"] for row in by_type)
    return {
        "fleet": present_fleet(by_type),
        "attention": [present_listed_server(server, outages) for server in worried],
        "attention_left_out": max(0, needing - len(worried)),
        "servers": [present_listed_server(server, outages) for server in running if not server.needs_attention],
        "present": present,
        "left_out": present - sum(server.state not in states.ENDED for server in running),
    }


def present_listed_server(server: TimedServer, outages: Sequence[OwnOutage] = ()) -> dict[str, Any]:
    """Return a server with its `beats` as the tables show it."""
    return {**present_server(server), "strip": build_strip(server, server.beats, outages)}


def read_outages(servers: Iterable[TimedServer]) -> Sequence[OwnOutage]:
    """Return the control plane's own outages, if heartbeats of a listed server are missing."""
    shown = [
        server.beats[:BEATS_SHOWN]
        for server in servers
        if any(later - earlier > 2 * server.heartbeat_interval for later, earlier in pairwise(server.beats))
    ]
    if not shown:
        return ()
    first, last = min(beats[-1] for beats in shown), max(beats[0] for beats in shown)
    start, end = (datetime.fromtimestamp(moment, UTC) for moment in (first, last))
    return own_outages(start, end, 3 * conf().heartbeat_interval)


def present_check(seconds: float | None, now: datetime) -> dict[str, Any]:
    """Return the age of the last liveness check, and whether the check is overdue."""
    return {
        "age": None if seconds is None else seconds_since(seconds, now),
        "is_overdue": is_check_late(seconds),
        "interval": f"{conf().interval:g}",
    }


def present_job_counts(
    figures: dict[str, Any], chosen: JobListFilter | None = None, format_count: Callable[[int], str] = format_number
) -> list[dict[str, Any]]:
    """Return each job state with its count and a link that filters by it and keeps the other filters."""
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


def format_estimate(count: int) -> str:
    """Return an estimated number, rounded to two digits and marked with ≈."""
    return f"≈ {float(f'{count:.2g}'):,.0f}"
