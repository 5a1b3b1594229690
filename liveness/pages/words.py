"""How the Instance pages write times, numbers and names.

Times are written hundreds of times a page, and nothing in them needs escaping: they are numbers.
"""

from datetime import datetime
from functools import lru_cache
from typing import Any
from uuid import UUID

from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString


def duration(seconds: float) -> str:
    """A length of time as people say it. controlplane/static/controlplane/instance.js says it alike."""
    whole = max(0, int(seconds))
    for unit, size, part, below in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= size:
            rest = whole % size // below if whole < 10 * size else 0
            return f"{whole // size} {unit} {rest} {part}" if rest else f"{whole // size} {unit}"
    return f"{whole} s"


def age(seconds: float) -> SafeString:
    """An age that the page goes on counting."""
    return SafeString(f'<span data-age="{seconds:.1f}">{duration(seconds)}</span>')


def left(seconds: float) -> SafeString:
    """A time to come that the page counts down."""
    return SafeString(f'<span data-left="{seconds:.1f}">{duration(seconds)}</span>')


def ago(at: datetime, now: datetime) -> SafeString:
    """How long ago, with the moment itself in the title."""
    seconds = (now - at).total_seconds()
    said = at.isoformat()
    title = f"{said[:10]} {said[11:19]} UTC"
    return SafeString(f'<time datetime="{said}" title="{title}" data-age="{seconds:.1f}">{duration(seconds)}</time>')


def moment(at: datetime) -> SafeString:
    """The time of day, with the date in the title."""
    title = f"{at:%Y-%m-%d %H:%M:%S.%f} UTC"
    return SafeString(f'<time datetime="{at.isoformat()}" title="{title}">{f"{at:%H:%M:%S.%f}"[:12]}</time>')


def jobs_said(count: int) -> str:
    return "1 job" if count == 1 else f"{count or 'no'} jobs"


@lru_cache(maxsize=1024)
def server_url(server: UUID) -> str:
    return reverse("instance:server", args=[server])


def server_link(server: Any) -> SafeString:
    return format_html('<a href="{}">{}</a>', server_url(server.pk), server.name)
