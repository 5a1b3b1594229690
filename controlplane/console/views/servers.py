"""The pages of servers: all of them, and one with its state machine, its heartbeats and what it holds."""

from collections import Counter
from typing import Any
from uuid import UUID

import orjson
from django.core.paginator import Paginator
from django.http import HttpResponse

from controlplane.console.actions.servers import SERVER_ACTIONS, offered
from controlplane.console.charts.heartbeats import BEATS, intervals, strip_of
from controlplane.console.charts.machine import machine
from controlplane.console.presenters.jobs import attempt_told
from controlplane.console.presenters.outlook import drawn, outlook, type_words
from controlplane.console.presenters.words import ago, moment, server_link, until
from controlplane.console.selectors.filters import ServerFilter
from controlplane.console.views.not_found import HOME, unknown
from controlplane.console.views.overview import check_told, listed
from controlplane.console.views.page import HtmxRequest, for_readers, page, sees
from controlplane.core.model_fields import ClockTimestamp
from jobs import selectors
from jobs.states import AttemptState
from liveness import selectors as liveness
from liveness import states
from liveness.selectors import ENDED

SERVERS_A_PAGE, ENDED_SHOWN = 20, 10
LOST = {AttemptState.RESUBMITTED, AttemptState.REQUEUED}


@for_readers("server")
def servers(request: HtmxRequest) -> HttpResponse:
    """Servers, those that need attention first, a page at a time; those that ended fold under History."""
    chosen = ServerFilter(request.GET)
    at = Paginator(chosen.apply(selectors.ranked()), SERVERS_A_PAGE).get_page(request.GET.get("page"))
    of_page: Any = at.object_list
    present = liveness.with_beats(selectors.holders_of(of_page), BEATS)
    facets = liveness.facets()
    versions = orjson.loads(facets.versions)
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
        },
        "at": at,
        "matching": at.paginator.count,
        "servers": rows(list(present), usual),
        "ended": ended(chosen),
        "actions": [] if chosen.wants_ended else offered(request, SERVER_ACTIONS),
        "folder": "servers",
        "url": request.build_absolute_uri("/").rstrip("/"),
    }
    return page(request, "servers", shown)


def ended(chosen: ServerFilter) -> list[dict[str, Any]]:
    """The servers of a filter that ended last; nothing where they are what it asks for."""
    if chosen.wants_ended:
        return []
    last = chosen.narrow(liveness.servers()).filter(state__in=states.GONE).annotate(now=ClockTimestamp())
    of_interest = ("type", "name", "cluster", "state", "state_changed_at", "last_heartbeat_at", "disconnected_observed")
    found: list[Any] = list(last.only(*of_interest).order_by("-state_changed_at")[:ENDED_SHOWN])
    return [
        {
            "it": server,
            "type": type_words(server.type, own=server.own),
            "link": server_link(server),
            "since": ago(server.state_changed_at, server.now),
            "heard": ago(server.last_heartbeat_at, server.now) if server.last_heartbeat_at else None,
            "was_lost": server.disconnected_observed is not None,
        }
        for server in found
    ]


def rows(servers: list[Any], usual: dict[str, str]) -> list[dict[str, Any]]:
    """Servers with their `beats` as the table shows them."""
    return [{**listed(server), **skew(server, usual)} for server in servers]


def usual_versions(versions: list[dict[str, Any]]) -> dict[str, str]:
    """The version that most alive servers of a type have."""
    count: dict[str, Counter[str]] = {}
    for row in versions:
        count.setdefault(row["type"], Counter())[row["version"]] += row["count"]
    return {type: versions.most_common(1)[0][0] for type, versions in count.items()}


def skew(server: Any, usual: dict[str, str]) -> dict[str, Any]:
    """The version that others have, where it is another."""
    other = usual.get(server.type, server.version)
    return {"skew": other if server.state in states.ALIVE and other != server.version else None}


@for_readers("server")
def server(request: HtmxRequest, server: UUID) -> HttpResponse:
    """One server: what it is, what happens to it next and why, what it holds and what it did."""
    found: Any = selectors.holders().select_related("token").filter(pk=server).first()
    if found is None:
        return unknown(request, "server")
    beats = list(liveness.beats_of(server)[:BEATS])
    attempts = list(selectors.attempts_of(server)) if sees(request, "job") else []
    events = list(reversed(liveness.events_of(server).order_by("-id")[:50]))
    shown = {
        "title": found.name,
        "trail": [HOME, ("Servers", "instance:servers")],
        "server": drawn(found),
        "outlook": outlook(found),
        "check": check_told(found.check_age, found.now),
        "machine": machine(found, [event for event in events if not event.action]),
        "cells": strip_of(found, [at.timestamp() for at in beats]),
        "intervals": intervals(beats, found.heartbeat_interval, found.now),
        "drain": drain(found),
        "metrics": [(name.replace("_", " "), value) for name, value in found.metrics.items()],
        "events": [(row, moment(row.at, found.now)) for row in events],
        "created": moment(found.created_at, found.now),
        "held": told(found, [attempt for attempt in attempts if attempt.finished_at is None]),
        "lost": told(found, [attempt for attempt in attempts if attempt.state in LOST]),
        "past": told(found, [attempt for attempt in attempts if attempt.finished_at and attempt.state not in LOST]),
        "actions": [("servers", action) for action in offered(request, SERVER_ACTIONS, found)],
    }
    return page(request, "server", shown)


def told(server: Any, attempts: list[Any]) -> list[dict[str, Any]]:
    return [attempt_told(attempt, server.now) for attempt in attempts]


def drain(server: Any) -> dict[str, Any] | None:
    """How far a drain has come."""
    if server.drain_deadline is None or server.state in ENDED:
        return None
    seconds = (server.drain_deadline - server.now).total_seconds()
    begun = max(server.drain_held or 0, server.held)
    return {
        "left": until(server.drain_deadline, server.now) if seconds > 0 else None,
        "deadline": moment(server.drain_deadline, server.now),
        "begun": begun,
        "done": begun - server.held,
        "share": 100 if not begun else round(100 * (begun - server.held) / begun),
    }
