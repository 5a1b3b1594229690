"""How the Instance pages write times, numbers and names.

Times are written hundreds of times a page, and nothing in them needs escaping: they are numbers.
"""

from datetime import datetime, timedelta
from functools import cache, lru_cache
from uuid import UUID

from django.urls import reverse
from django.utils.html import conditional_escape, format_html_join
from django.utils.safestring import SafeString

from controlplane.core.durations import describe_duration
from liveness.models import Server

NOTHING = UUID(int=0)


def time_since(at: datetime, now: datetime) -> SafeString:
    """How long ago a moment was."""
    return counting_time(at, "age", (now - at).total_seconds())


def seconds_since(seconds: float, now: datetime) -> SafeString:
    """How long ago it was that many seconds before now."""
    return counting_time(now - timedelta(seconds=seconds), "age", seconds)


def time_until(at: datetime, now: datetime) -> SafeString:
    """How long it is to a moment."""
    return counting_time(at, "left", (at - now).total_seconds())


def seconds_until(seconds: float, now: datetime) -> SafeString:
    """How long it is to that many seconds from now."""
    return counting_time(now + timedelta(seconds=seconds), "left", seconds)


def counting_time(at: datetime, kind: str, seconds: float) -> SafeString:
    """A length of time that the page goes on counting, with the moment itself in the title."""
    timestamp = at.isoformat()
    title = f"{timestamp[:10]} {timestamp[11:19]} UTC"
    return SafeString(
        f'<time datetime="{timestamp}" title="{title}" data-{kind}="{seconds:.1f}">{describe_duration(seconds)}</time>'
    )


def format_moment(at: datetime, now: datetime) -> SafeString:
    """The time of day, or if it was another day the day as well; the whole of it in the title."""
    title = f"{at:%Y-%m-%d %H:%M:%S.%f} UTC"
    text = f"{at:%H:%M:%S.%f}"[:12] if at.date() == now.date() else format_time_of_day(at, now)
    return SafeString(f'<time datetime="{at.isoformat()}" title="{title}">{text}</time>')


def format_time_of_day(at: datetime, now: datetime) -> str:
    """The time of day, to the second; of another day with the day."""
    return f"{at:%H:%M:%S}" if at.date() == now.date() else f"{at:%b %d %H:%M:%S}"


def format_number(number: int) -> str:
    return f"{number:,}"


def shorten(text: str, length: int) -> str:
    """A text of at most so many characters; where some are missing it ends in an ellipsis."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


@lru_cache(maxsize=4096)
def format_tags(tags: tuple[str, ...]) -> SafeString:
    """Those that agents find by themselves, as `runtime:shell`, come last: where there is little room, the others are
    what tells servers apart. What has the empty tag alone is dispatched by the control plane itself, and shows none."""
    shown = sorted(filter(None, tags), key=lambda tag: ":" in tag)
    return format_html_join(" ", '<span class="tag">{}</span>', ((tag,) for tag in shown)) or SafeString("–")


@cache
def find_page_url(name: str) -> str:
    """The address of the page of one thing, with the id of nothing in it."""
    return reverse(f"instance:{name}", args=[NOTHING])


def page_url(name: str, id: UUID | str) -> str:
    """The address of the page of one thing."""
    return find_page_url(name).replace(str(NOTHING), str(id))


def link_to(url: str, label: str) -> SafeString:
    """An address is ours, and has nothing in it to be escaped."""
    return SafeString(f'<a href="{url}">{conditional_escape(label)}</a>')


def link_to_server(server: Server) -> SafeString:
    return link_to(page_url("server", server.pk), server.name)
