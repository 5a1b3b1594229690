"""Verdict of the overview: a headline, a row for each concern with the way to act on it, and notes."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from controlplane.console.formatting import page_url
from controlplane.console.presenters.clauses import render_clause
from controlplane.console.presenters.fleet import TYPES
from controlplane.core.program import program
from jobs.states import Flag
from jobs.verdict import Verdict
from jobs.verdict.clauses import BAD, Concern, NamedServer, SomeJobs

LABELS: dict[str, str] = {
    "check": "Liveness check", "silent": "Silent", "lost": "Lost", "ending": "Ending", "no_server": "No server",
    "no_worker": "No worker", "no_worker_takes_work": "No worker", "no_matching_worker": "Will fail",
    "quarantine": "Quarantine", "failures": "Failures", "oldest_waiting": "Long wait", "hold_open": "Hold",
    **{flag.value: "Stuck" for flag in Flag},
    Flag.DEADLINE_MISSED.value: "Late",
}  # fmt: skip
"""Words beside each kind of concern."""
ABOUT_SERVERS = {"silent", "lost", "ending"}
NOTHING_YET = {"tone": "empty", "headline": "No server has registered yet."}
RELEASED_BY = " <code>{} release_brake</code> releases them."

Row = dict[str, Any]


def present_verdict(
    verdict: Verdict,
    now: datetime,
    brakes: Iterable[dict[str, Any]] = (),
    *,
    cluster: str = "",
    links_servers: bool,
    may_release: bool = False,
) -> dict[str, Any]:
    """Return the verdict as the overview shows it. An engaged brake is the first concern."""

    def render(concern: Concern) -> SafeString:
        return format_html("{}.", render_clause(concern.parts, now, links_servers=links_servers))

    held = [present_brake(brake, may_release=may_release) for brake in brakes]
    rows = [present_concern(concern, render(concern), cluster, links_servers) for concern in verdict.causes]
    return {
        "tone": "bad" if held else verdict.tone,
        "headline": held[0]["headline"] if held else verdict.headline,
        "rows": [*held, *rows],
        "count": verdict.count if rows or held else "",
        "notes": [render(concern) for concern in verdict.notes],
        "incident": verdict.incident and render(verdict.incident),
    }


def present_concern(concern: Concern, text: SafeString, cluster: str, links_servers: bool) -> Row:
    return {
        "label": LABELS.get(concern.kind, concern.kind),
        "tone": "bad" if concern.tone == BAD else "warn",
        "text": text,
        "flag": concern.kind if concern.kind in LABELS and concern.kind in frozenset(Flag) else "",
        "button": find_way(concern, cluster, links_servers),
    }


def find_way(concern: Concern, cluster: str, links_servers: bool) -> dict[str, str] | None:
    """Return the link of a concern: to its job or jobs, its server or servers."""
    for part in concern.parts:
        if isinstance(part, SomeJobs):
            if part.only:
                return {"label": "Open job", "url": page_url("job", UUID(part.only))}
            label = {"quarantine": "Review", "holds": "Show holds"}.get(part.page, "Show jobs")
            return {"label": label, "url": link_to_list(part.page, dict(part.query))}
    if not links_servers:
        return None
    if concern.kind in ABOUT_SERVERS and (concern.servers or 0) > 1:
        return {"label": "Show servers", "url": link_to_list("servers", {"attention": "1", "cluster": cluster})}
    for part in concern.parts:
        if isinstance(part, NamedServer):
            return {"label": "Open server", "url": page_url("server", part.id)}
    if concern.kind == "check":
        return {"label": "Show executors", "url": link_to_list("servers", {"type": "EXECUTOR"})}
    return {"label": "Show servers", "url": link_to_list("servers", {"cluster": cluster})}


def present_brake(brake: dict[str, Any], *, may_release: bool) -> Row:
    """Return the row and the headline of an engaged brake."""
    number = f"{brake['silent']:,} of {brake['alive']:,}"
    servers = TYPES.get(brake["type"], brake["type"]).lower()
    query = {name: brake[name] for name in ("type", "namespace", "cluster") if brake[name]}
    page, label = ("brake_release", "Release brake…") if may_release else ("brake", "Show brake")
    return {
        "label": "Brake",
        "tone": "bad",
        "headline": f"{number} {servers} fell silent at once; the brake holds them",
        "text": format_html(
            "<strong>The brake holds {}.</strong> {} became silent at the same time. A failed network is more likely "
            "than so many crashes, so they keep their state. The next heartbeat frees each server.{}",
            brake["words"], number, "" if may_release else format_html(RELEASED_BY, program()),
        ),
        "button": {"label": label, "url": link_to_list(page, query), "is_grave": may_release},
    }  # fmt: skip


def link_to_list(page: str, query: dict[str, str]) -> str:
    chosen = urlencode({name: value for name, value in query.items() if value})
    return f"{reverse(f'instance:{page}')}{'?' if chosen else ''}{chosen}"
