"""How the Instance pages speak: who may read them, how ages are written, what happens to a server next.

The views are in jobs/pages.py, since every page shows jobs as well.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import wraps
from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django_htmx.middleware import HtmxDetails

from liveness import states
from liveness.conf import conf
from liveness.selectors import ENDED
from liveness.states import RestartStrategy, ServerState, ServerType

View = Callable[..., HttpResponse]


class HtmxRequest(HttpRequest):
    htmx: HtmxDetails


def for_readers(view: View) -> View:
    """A page of the admin for staff who may view servers."""

    @wraps(view)
    def judged(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if not request.user.has_perm("liveness.view_server"):
            raise PermissionDenied("This page needs the permission liveness.view_server.")
        return view(request, *args, **kwargs)

    return admin.site.admin_view(judged)


def page(request: HtmxRequest, name: str, shown: dict[str, Any], status: int = 200) -> HttpResponse:
    """The page, or for a poll only the part of it that lives."""
    live = f"admin/instance/_{name}.html"
    if request.htmx:
        return render(request, live, shown, status=status)
    context = {**admin.site.each_context(request), "live": live, "poll": status == 200, **shown}
    return render(request, "admin/instance/base.html", context, status=status)


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
    return format_html('<span data-age="{}">{}</span>', f"{seconds:.1f}", duration(seconds))


def left(seconds: float) -> SafeString:
    """A time to come that the page counts down."""
    return format_html('<span data-left="{}">{}</span>', f"{seconds:.1f}", duration(seconds))


def ago(at: datetime, now: datetime) -> SafeString:
    """How long ago, with the moment itself in the title."""
    seconds = (now - at).total_seconds()
    return format_html(
        '<time datetime="{}" title="{}" data-age="{}">{}</time>',
        at.isoformat(), f"{at:%Y-%m-%d %H:%M:%S} UTC", f"{seconds:.1f}", duration(seconds),
    )  # fmt: skip


def moment(at: datetime) -> SafeString:
    """The time of day, with the date in the title."""
    title = f"{at:%Y-%m-%d %H:%M:%S.%f} UTC"
    return format_html('<time datetime="{}" title="{}">{}</time>', at.isoformat(), title, f"{at:%H:%M:%S.%f}"[:12])


def jobs_said(count: int) -> str:
    return "1 job" if count == 1 else f"{count or 'no'} jobs"


def server_link(server: Any) -> SafeString:
    return format_html('<a href="{}">{}</a>', reverse("instance:server", args=[server.pk]), server.name)


def drawn(server: Any) -> dict[str, Any]:
    """A server as the tables show it. A silent one is never drawn as well: freshness is judged at this read."""
    beats = server.state in states.BEATING
    return {
        "it": server,
        "link": server_link(server),
        "badge": "LATE" if server.late else server.state,
        "since": age(server.since),
        "silence": age(server.silence) if server.last_heartbeat_at else "never",
        "share": min(100, round(100 * server.silence / server.timeout)) if beats else None,
        "tone": "late" if server.late or server.silence > server.timeout else "well",
        "timeout": duration(server.timeout),
        "up": age(server.age) if server.state in states.ALIVE else "–",
    }


def concern(server: Any) -> tuple[float, SafeString] | None:
    """What is wrong with a server, in a clause for the verdict, and in how many seconds it gets worse."""
    if server.state in ENDED or (server.state in states.ALIVE and not server.late):
        return None
    name = server_link(server)
    if server.state in states.ALIVE:
        due = server.overdue_in
        if server.braked and due <= 0:
            when = SafeString("held by the brake")
        elif due <= 0:
            when = SafeString("DISCONNECTED at the next liveness check")
        else:
            when = format_html("DISCONNECTED in {}", left(due))
        then = f", {jobs_said(server.held)} {fate(server, one=server.held == 1)}" if server.held else ""
        return due, format_html("{} silent for {}: {}{}", name, age(server.silence), when, then)
    if server.state == ServerState.TERMINATING and server.lost_in > 0:
        return server.lost_in, format_html("{} is TERMINATING and holds {}", name, jobs_said(server.held))
    if not server.held:
        return 1e9, format_html("{} is {} and holds no job", name, server.state)
    if server.moves_in is None:
        return 1e9, format_html("{} is {} and keeps {} (NEVER)", name, server.state, jobs_said(server.held))
    when = format_html("in {}", left(server.moves_in)) if server.moves_in > 0 else SafeString("at the next check")
    moves = "moves" if server.held == 1 else "move"
    return server.moves_in, format_html("{} is {}: {} {} {}", name, server.state, jobs_said(server.held), moves, when)


def fate(server: Any, *, one: bool = False) -> str:
    """What then becomes of the running jobs, or of the one job, of a server that is lost."""
    s = "s" if one else ""
    if server.worker_task_restart_strategy == RestartStrategy.NEVER:
        return f"then stay{s} with it (restart strategy NEVER)"
    if server.worker_task_restart_strategy == RestartStrategy.IMMEDIATELY or server.type != ServerType.WORKER:
        return f"then move{s} at once"
    return f"then wait{s} {duration(server.termination_grace_period)} for its grace period"


def outlook(server: Any) -> list[SafeString]:
    """What happens to a server next, when, and what follows from that; a sentence each."""
    check = format_html("the next liveness check (every {})", duration(conf().interval))
    if server.state in states.ALIVE:
        return alive_outlook(server, check)
    if server.state == ServerState.INACTIVE:
        return [SafeString("Nothing: it has ended and never comes back. A restart is another server.")]
    if server.state == ServerState.NOT_RUNNING:
        return [format_html("INACTIVE at {}. Whatever it still reports is refused.", check)]
    if server.lost_in > 0:
        return [
            SafeString("It finishes what it holds and says so."),
            format_html("If it does not, it counts as lost in {}, and its jobs move.", left(server.lost_in)),
        ]
    gone = "Then it is NOT_RUNNING, in the check after, once nothing is left to move."
    if server.moves_in is None:
        return [
            SafeString("Its running jobs stay with it: its restart strategy is NEVER. Claimed ones move."),
            format_html("NOT_RUNNING at {}.", check),
        ]
    if server.moves_in > 0:
        grace = duration(server.termination_grace_period)
        return [
            format_html(
                "In {} its grace period of {} has passed: its running jobs move.", left(server.moves_in), grace
            ),
            SafeString(gone),
        ]
    return [format_html("What it still holds moves at {}.", check), SafeString(gone)]


def alive_outlook(server: Any, check: SafeString) -> list[SafeString]:
    if not conf().enabled:
        return [SafeString("Nothing: liveness checks are switched off, so nobody is disconnected for silence.")]
    due = server.overdue_in
    then = f"Its running jobs {fate(server)}; claimed ones move at once."
    if server.braked and due <= 0:
        first = SafeString("Nothing while the brake holds its type; it is freed when it is heard.")
    elif due <= 0:
        first = format_html("DISCONNECTED at {}, unless it is heard before.", check)
    elif server.late:
        first = format_html("DISCONNECTED in {}, unless it is heard before.", left(due))
    else:
        every, due_words = duration(server.heartbeat_interval), duration(server.timeout)
        first = format_html("Nothing while it beats every {}. After {} of silence: DISCONNECTED.", every, due_words)
    return [first, SafeString(then)]


def strip(beats: Sequence[datetime], interval: float, silence: float | None, cells: int = 60) -> list[dict[str, Any]]:
    """The last beats of a server as cells, oldest first; a beat that did not come is a hollow one.

    `beats` are latest first; `silence` is the time since, None when none is expected any more.
    """
    drawn: list[dict[str, Any]] = []

    def hollow(seconds: float) -> list[dict[str, Any]]:
        missed = min(cells, round(seconds / interval) - 1)
        return [{"title": f"no heartbeat in {duration(seconds)}"}] * missed

    if silence is not None and beats:
        drawn += hollow(silence)
    for place, at in enumerate(beats):
        drawn.append({"beat": True, "title": f"{at:%H:%M:%S} UTC"})
        if place + 1 < len(beats):
            drawn += hollow((at - beats[place + 1]).total_seconds())
        if len(drawn) >= cells:
            break
    return [{**cell, "x": place * 8} for place, cell in enumerate(reversed(drawn[:cells]))]
