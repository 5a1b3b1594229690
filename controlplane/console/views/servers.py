"""Pages of servers: the list, and one server with its state machine, heartbeats and attempts."""

from collections import Counter
from functools import lru_cache
from typing import Any
from uuid import UUID

from django.contrib.postgres.expressions import ArraySubquery
from django.core.paginator import Paginator
from django.db.models import OuterRef, QuerySet
from django.db.models.functions import JSONObject
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from controlplane.console.actions.servers import SERVER_ACTIONS, list_permitted_actions
from controlplane.console.charts.heartbeats import BEATS_SHOWN, build_strip, summarize_intervals
from controlplane.console.charts.machine import build_machine
from controlplane.console.formatting import format_moment, link_to_server, time_since, time_until
from controlplane.console.page import (
    HOME,
    reached_namespaces,
    render_page,
    require_reader,
    sees,
    show_not_found,
    within_reach,
)
from controlplane.console.presenters.jobs import present_attempt
from controlplane.console.presenters.outlook import describe_outlook, list_capabilities, present_server, type_words
from controlplane.console.presenters.server_charts import present_server_charts
from controlplane.console.presenters.sort_heads import build_sort_heads
from controlplane.console.selectors.chart_period import ChartPeriod
from controlplane.console.selectors.filters.servers import SORTED_BY, ServerListFilter
from controlplane.console.views.overview import present_check, present_listed_server
from controlplane.console.views.server_config import CONFIGURE, explain_refusal
from controlplane.core.composed import ComposedRows, Given
from controlplane.core.json_bodies import read_json
from controlplane.core.model_fields import ClockTimestamp
from jobs.models import Attempt, TaskTally
from jobs.selectors.servers import (
    attempts_of_server,
    details_of_servers,
    servers_by_attention,
    servers_with_held_attempts,
)
from jobs.sql import sql
from jobs.states import AttemptState
from liveness import states
from liveness.conf import LivenessSettings, conf
from liveness.selectors.counts import server_facets
from liveness.selectors.events import events_of_server
from liveness.selectors.heartbeats import beats_with_outages, servers_with_beats
from liveness.selectors.servers import TimedServer, servers_with_silence

SERVERS_A_PAGE, ENDED_SHOWN, TALLIES_SHOWN = 20, 10, 100
TALLIED = ("completed", "failed", "retried", "lost")
LOST_ATTEMPT_STATES = {AttemptState.RESUBMITTED, AttemptState.REQUEUED}


@require_reader("server")
def show_servers(request: HttpRequest) -> HttpResponse:
    """Show servers. Servers that need attention come first, and ended servers are folded under History."""
    chosen = ServerListFilter(request.GET)
    rows = within_reach(request, servers_by_attention())
    at = Paginator(chosen.sort_rows(chosen.filter_rows(rows)), SERVERS_A_PAGE).get_page(request.GET.get("page"))
    of_page: Any = at.object_list
    present = chosen.sort_found(compose_listed_servers(conf()).fetch(page=of_page.values("pk")))
    facets = server_facets(reached_namespaces(request))
    versions = read_json(facets.versions)
    usual = usual_versions(versions)
    shown = {
        "title": "Servers",
        "trail": [HOME],
        "filter": chosen,
        "filters": "servers",
        "choices": {
            "cluster": sorted({row["cluster"] for row in versions}),
            "version": sorted({row["version"] for row in versions if row["version"]}),
            "tag": facets.tags,
            "namespace": facets.namespaces,
        },
        "at": at,
        "matching": at.paginator.count,
        "heads": build_sort_heads(chosen.texts, SORTED_BY),
        "servers": present_servers(present, usual),
        "ended": present_ended_servers(chosen, within_reach(request, servers_with_silence())),
        "actions": [] if chosen.wants_ended else list_permitted_actions(request, SERVER_ACTIONS),
        "folder": "servers",
        "url": request.build_absolute_uri("/").rstrip("/"),
    }
    return render_page(request, "servers", shown)


@lru_cache(maxsize=8)
def compose_listed_servers(settings: LivenessSettings) -> ComposedRows[TimedServer]:
    return ComposedRows(servers_with_beats(details_of_servers(Given("page")), BEATS_SHOWN))


def present_ended_servers(chosen: ServerListFilter, rows: QuerySet[Any]) -> list[dict[str, Any]]:
    """Return the most recently ended servers that match the filter, for the list below the main list.

    Return none if the filter asks for ended servers, because the main list shows them then.
    """
    if chosen.wants_ended:
        return []
    last = chosen.narrow_rows(rows).filter(state__in=states.RETIRED).annotate(now=ClockTimestamp())
    of_interest = (
        "type", "name", "namespace", "cluster", "state", "state_changed_at", "last_heartbeat_at",
        "disconnected_observed",
    )  # fmt: skip
    servers: list[TimedServer] = list(last.only(*of_interest).order_by("-state_changed_at")[:ENDED_SHOWN])
    return [
        {
            "it": server,
            "type": type_words(server.type, own=server.own),
            "link": link_to_server(server),
            "since": time_since(server.state_changed_at, server.now),
            "heard": time_since(server.last_heartbeat_at, server.now) if server.last_heartbeat_at else None,
            "was_lost": server.disconnected_observed is not None,
        }
        for server in servers
    ]


def present_servers(servers: list[TimedServer], usual: dict[str, str]) -> list[dict[str, Any]]:
    """Return servers with their `beats` as the table shows them."""
    return [{**present_listed_server(server), **find_version_skew(server, usual)} for server in servers]


def usual_versions(versions: list[dict[str, Any]]) -> dict[str, str]:
    """Return the most common version among alive servers of each type."""
    count: dict[str, Counter[str]] = {}
    for row in versions:
        count.setdefault(row["type"], Counter())[row["version"]] += row["count"]
    return {type: versions.most_common(1)[0][0] for type, versions in count.items()}


def find_version_skew(server: TimedServer, usual: dict[str, str]) -> dict[str, Any]:
    """Return the most common version of the server's type if the server runs a different one."""
    other = usual.get(server.type, server.version)
    return {"skew": other if server.state in states.ALIVE and other != server.version else None}


@require_reader("server")
def show_server(request: HttpRequest, server: UUID) -> HttpResponse:
    """Show one server: its state, what happens next and why, the attempts it holds, and its history."""
    details: Any = next(iter(compose_server(conf()).fetch(server=server)), None)
    if details is None:
        return show_not_found(request, "server")
    least = 3 * conf().heartbeat_interval
    chosen = ChartPeriod.from_address(request.GET, details.now)
    beats, outages, steps = beats_with_outages(
        server, BEATS_SHOWN, details.heartbeat_interval, least, sql.read_server_history, **chosen.params(details.now)
    )
    attempts = attempts_of_server(server) if sees(request, "job") else []
    events = list(reversed(events_of_server(server).order_by("-id")[:50]))
    shown = {
        "title": details.name,
        "has_own_head": True,
        "server": present_server(details),
        "outlook": describe_outlook(details),
        "check": present_check(details.check_age, details.now),
        "machine": build_machine(details, [event for event in events if not event.action]),
        "cells": build_strip(details, [at.timestamp() for at in beats], outages),
        "intervals": summarize_intervals(
            beats, details.heartbeat_interval, details.now, details.state in states.MAY_HEARTBEAT, outages
        ),
        "charts": present_server_charts(details, chosen, steps, events, sees_jobs=sees(request, "job")),
        "drain": present_drain(details),
        "capabilities": list_capabilities(details.capabilities),
        "metrics": [(name.replace("_", " "), value) for name, value in details.metrics.items()],
        "events": [(row, format_moment(row.at, details.now)) for row in events],
        "cordon_left": details.cordon_until and time_until(details.cordon_until, details.now),
        "created": format_moment(details.created_at, details.now),
        "held": present_attempts(details, [attempt for attempt in attempts if attempt.finished_at is None]),
        "lost": present_attempts(details, [attempt for attempt in attempts if attempt.state in LOST_ATTEMPT_STATES]),
        "past": present_attempts(
            details,
            [attempt for attempt in attempts if attempt.finished_at and attempt.state not in LOST_ATTEMPT_STATES],
        ),
        "tallies": present_tallies(details.tallies) if sees(request, "job") else [],
        "actions": [("servers", action) for action in list_permitted_actions(request, SERVER_ACTIONS, details)],
        "forms": [("Change", reverse("instance:server_change", args=[server]), "")]
        if request.user.has_perm(CONFIGURE) and not explain_refusal(details)
        else [],
    }
    return render_page(request, "server", shown)


@lru_cache(maxsize=8)
def compose_server(settings: LivenessSettings) -> ComposedRows[TimedServer]:
    """Return the query for a server with its token and the outcomes of its Celery tasks (`tallies`)."""
    tallies = TaskTally.objects.filter(server_id=OuterRef("pk"))
    fields = JSONObject(**{field: field for field in ("name", *TALLIED, "seconds")})
    known: Any = servers_with_held_attempts().select_related("token")
    known = known.annotate(tallies=ArraySubquery(tallies.values(fields=fields)))
    return ComposedRows(known.filter(pk=Given("server")))


def present_attempts(server: TimedServer, attempts: list[Attempt]) -> list[dict[str, Any]]:
    state = "SILENT" if server.silent else server.state
    return [present_attempt(attempt, server.now, state) for attempt in attempts]


def present_tallies(tallies: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the outcomes of a server's Celery tasks by name, longest total time first."""
    sums: dict[str, Counter[str]] = {}
    for tally in tallies:  # a short list, because retention limits it
        sums.setdefault(tally.pop("name"), Counter()).update(tally)
    by_time = sorted(sums.items(), key=lambda row: (-row[1]["seconds"], row[0]))[:TALLIES_SHOWN]
    return [
        {"name": name, **counts, "each": counts["seconds"] / max(1, sum(counts[field] for field in TALLIED))}
        for name, counts in by_time
    ]


def present_drain(server: TimedServer) -> dict[str, Any] | None:
    """Return the progress of a drain, or None if the server is not draining."""
    if server.drain_deadline is None or server.state in states.ENDED:
        return None
    seconds = (server.drain_deadline - server.now).total_seconds()
    begun = max(server.drain_held or 0, server.held)
    return {
        "left": time_until(server.drain_deadline, server.now) if seconds > 0 else None,
        "deadline": format_moment(server.drain_deadline, server.now),
        "begun": begun,
        "done": begun - server.held,
        "share": 100 if not begun else round(100 * (begun - server.held) / begun),
    }
