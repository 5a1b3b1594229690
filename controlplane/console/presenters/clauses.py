"""What is told in parts, as HTML: names lead to their pages, times go on running."""

from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django.urls import reverse
from django.utils.html import conditional_escape, format_html, format_html_join
from django.utils.safestring import SafeString

from controlplane.console.presenters.formatting import (
    format_time_of_day,
    page_url,
    seconds_since,
    seconds_until,
)
from jobs.states import Flag
from jobs.verdict import Verdict
from jobs.verdict.clauses import Clause, Concern, Elapsed, Moment, NamedServer, Part, Remaining, SomeJobs


def render_clause(parts: Clause, now: datetime, *, links_servers: bool = True) -> SafeString:
    """`links_servers`: who reads it may view servers."""
    if not links_servers:
        parts = tuple(part.name if isinstance(part, NamedServer) else part for part in parts)
    return format_html_join("", "{}", ((render_part(part, now),) for part in parts))


def render_part(part: Part, now: datetime) -> SafeString:
    match part:
        case NamedServer():
            return format_html('<a href="{}">{}</a>', page_url("server", part.id), part.name)
        case Elapsed():
            return seconds_since(part.seconds, now)
        case Remaining():
            return seconds_until(part.seconds, now)
        case Moment():
            title = f"{part.at:%Y-%m-%d %H:%M:%S} UTC"
            text = format_time_of_day(part.at, now)[:-3]
            return format_html('<time datetime="{}" title="{}">{}</time>', part.at.isoformat(), title, text)
        case SomeJobs():
            query = f"?{urlencode(part.query)}" if part.query else ""
            return format_html('<a href="{}{}">{}</a>', reverse(f"instance:{part.page}"), query, part.words)
        case _:
            return conditional_escape(part)


def present_verdict(verdict: Verdict, now: datetime, *, links_servers: bool) -> dict[str, Any]:
    """The verdict as the first page shows it: in sentences; what stands still apart, with what it waits for."""

    def render(concern: Concern) -> SafeString:
        return format_html("{}.", render_clause(concern.parts, now, links_servers=links_servers))

    stuck = [concern for concern in verdict.concerns if concern.kind in set(Flag)]
    others = [concern for concern in verdict.concerns if concern not in stuck]
    return {
        "tone": verdict.tone,
        "sentences": [verdict.head, *(render(concern) for concern in others if concern.tone != "note")],
        "notes": [render(concern) for concern in others if concern.tone == "note"],
        "stuck": [{"flag": concern.kind, "text": render(concern)} for concern in stuck],
        "incident": verdict.incident and render(verdict.incident),
    }
