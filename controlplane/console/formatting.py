"""Times, numbers and names as the Instance pages write them.

Times are not escaped, because they contain only digits and fixed words, and a page has hundreds of them.
"""

from datetime import datetime
from functools import cache, lru_cache
from urllib.parse import urlencode
from uuid import UUID

from django.urls import reverse
from django.utils.html import conditional_escape, format_html_join
from django.utils.safestring import SafeString

from controlplane.core.bounds import moment_after
from controlplane.core.durations import describe_duration
from liveness.models import Server

NOTHING = UUID(int=0)


def time_since(at: datetime, now: datetime) -> SafeString:
    """Return the time since a moment as a `<time>` element that the page keeps counting."""
    return counting_time(at, "age", (now - at).total_seconds())


def seconds_since(seconds: float, now: datetime) -> SafeString:
    """Return the time since the moment that was `seconds` ago, as `time_since` does."""
    return counting_time(whole_second_after(now, -seconds), "age", seconds)


def time_until(at: datetime, now: datetime) -> SafeString:
    """Return the time until a moment as a `<time>` element that the page keeps counting."""
    return counting_time(at, "left", (at - now).total_seconds())


def seconds_until(seconds: float, now: datetime) -> SafeString:
    """Return the time until the moment that is `seconds` from now, as `time_until` does."""
    return counting_time(whole_second_after(now, seconds), "left", seconds)


def whole_second_after(now: datetime, seconds: float) -> datetime:
    """Return the nearest whole second, so that each poll gives the same moment although two clocks were read."""
    return moment_after(now, seconds + 0.5).replace(microsecond=0)


def counting_time(at: datetime, kind: str, seconds: float) -> SafeString:
    """Return a duration that the page keeps counting, with the moment itself in the title."""
    timestamp = at.isoformat()
    title = f"{timestamp[:10]} {timestamp[11:19]} UTC"
    return SafeString(
        f'<time datetime="{timestamp}" title="{title}" data-{kind}="{seconds:.1f}">{describe_duration(seconds)}</time>'
    )


def format_moment(at: datetime, now: datetime) -> SafeString:
    """Return the time of day, with the day if it is not today. The title has the full timestamp."""
    title = f"{at:%Y-%m-%d %H:%M:%S.%f} UTC"
    text = f"{at:%H:%M:%S.%f}"[:12] if at.date() == now.date() else format_time_of_day(at, now)
    return SafeString(f'<time datetime="{at.isoformat()}" title="{title}">{text}</time>')


def format_time_of_day(at: datetime, now: datetime) -> str:
    """Return the time of day to the second, with the day if it is not today."""
    return f"{at:%H:%M:%S}" if at.date() == now.date() else f"{at:%b %d %H:%M:%S}"


def format_state(state: str) -> str:
    """Return a state or an action as ordinary words, like "Not running"."""
    return str(state).replace("_", " ").capitalize()


def format_number(number: int) -> str:
    return f"{number:,}"


def shorten(text: str, length: int) -> str:
    """Return the text, cut to `length` characters. A cut text ends in an ellipsis."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


@lru_cache(maxsize=4096)
def format_tags(tags: tuple[str, ...]) -> SafeString:
    """Return the tags as HTML. A job whose only tag is empty shows no tags: the control plane dispatches it itself.

    Tags that agents add by themselves (like `runtime:shell`) come last, because the other tags distinguish servers
    better.
    """
    shown = sorted(filter(None, tags), key=lambda tag: ":" in tag)
    return format_html_join(" ", '<span class="tag">{}</span>', ((tag,) for tag in shown)) or SafeString("–")


@cache
def find_page_url(name: str) -> str:
    """Return the URL of an object's page, with an id of zeros as placeholder."""
    return reverse(f"instance:{name}", args=[NOTHING])


def page_url(name: str, id: UUID | str) -> str:
    """Return the URL of an object's page."""
    return find_page_url(name).replace(str(NOTHING), str(id))


def link_to_page(name: str, **query: str) -> str:
    """Return the URL of a page without an object, with this query."""
    return f"{reverse(f'instance:{name}')}?{urlencode(query)}"


def link_to(url: str, label: str) -> SafeString:
    """Return a link. The URL is built by this package and needs no escaping."""
    return SafeString(f'<a href="{url}">{conditional_escape(label)}</a>')


def link_to_server(server: Server) -> SafeString:
    return link_to(page_url("server", server.pk), server.name)
