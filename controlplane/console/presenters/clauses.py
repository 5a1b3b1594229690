"""HTML of sentences built from parts: names link to their pages, and times keep counting."""

from datetime import datetime
from urllib.parse import urlencode
from uuid import UUID

from django.urls import reverse
from django.utils.html import conditional_escape, format_html, format_html_join
from django.utils.safestring import SafeString

from controlplane.console.formatting import (
    format_time_of_day,
    page_url,
    seconds_since,
    seconds_until,
)
from jobs.verdict.clauses import Clause, Elapsed, Moment, NamedServer, Part, Remaining, SomeJobs


def render_clause(parts: Clause, now: datetime, *, links_servers: bool = True) -> SafeString:
    """Return the parts as HTML. `links_servers` is True if the user may view servers."""
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
        case SomeJobs(only=str(job)):
            return format_html('<a href="{}">{}</a>', page_url("job", UUID(job)), part.words)
        case SomeJobs():
            query = f"?{urlencode(part.query)}" if part.query else ""
            return format_html('<a href="{}{}">{}</a>', reverse(f"instance:{part.page}"), query, part.words)
        case _:
            return conditional_escape(part)
