"""Outlook of a server: what is wrong, since when, what happens next and why."""

import re
from typing import Any

from django.utils.html import format_html
from django.utils.safestring import SafeString

from controlplane.console.formatting import format_tags, link_to_server, seconds_until, shorten, time_since
from controlplane.console.presenters.clauses import render_clause
from controlplane.core.bounds import clamp_number
from controlplane.core.durations import describe_duration
from jobs.verdict.servers import describe_fate_of_jobs, describe_loss
from liveness import states
from liveness.conf import conf
from liveness.selectors.next_transition import expected_loss
from liveness.selectors.servers import TimedServer
from liveness.states import ServerState, ServerType

CAPABILITY_LENGTH = 300
TAG = re.compile("<[^>]*>")
"""HTML tag in a text of this module. Names in such a text are already escaped."""


def present_server(server: TimedServer) -> dict[str, Any]:
    """Return a server as the tables show it. `silent` is computed by the query, so it is never out of date."""
    beats = server.state in states.MAY_HEARTBEAT
    due = describe_disconnection(server)
    return {
        "it": server,
        "id": SafeString(server.pk),
        "tags": format_tags(tuple(server.tags)),
        "link": link_to_server(server),
        "type": type_words(server.type, own=server.own),
        "badge": "SILENT" if server.silent else server.state,
        "since": time_since(server.state_changed_at, server.now),
        # `since` is the duration of the state, not of the silence, the cordon or the drain.
        "other_state": server.state if server.silent or server.cordoned_by or server.drain_deadline else None,
        "silence": time_since(server.last_heartbeat_at, server.now) if server.last_heartbeat_at else "never",
        "share": min(100, round(100 * server.silence / server.timeout)) if beats else None,
        "tone": "silent" if server.silent or server.silence > server.timeout else "well",
        "due": due,
        "due_title": due and SafeString(TAG.sub("", due)),
        "load": list_loads(server.metrics),
        "timeout": describe_duration(server.timeout),
        "up": time_since(server.created_at, server.now) if server.state in states.ALIVE else "–",
    }


def type_words(type: str, *, own: bool) -> str:
    """Return the type of a server.

    It is marked "external" if only processes of the control plane should have it, and this server is none.
    """
    return type if own or type == ServerType.WORKER else f"{type}, external"


def describe_disconnection(server: TimedServer) -> SafeString | None:
    """Return when a silent server becomes DISCONNECTED, or None."""
    if not server.silent or server.state not in states.ALIVE:
        return None
    return render_clause(describe_loss(server), server.now)


def list_loads(metrics: dict[str, Any]) -> list[tuple[str, int]]:
    """Return CPU and memory use in per cent. Values from servers are clamped, because they may be any number."""
    readings = (("CPU", metrics.get("cpu_percent")), ("memory", metrics.get("memory_percent")))
    return [(word, round(clamp_number(value, 0, 100))) for word, value in readings if isinstance(value, int | float)]


def list_capabilities(capabilities: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the capabilities that a server reports, as text. Their content is up to the server."""
    return [
        (name.replace("_", " "), shorten(in_words(value), CAPABILITY_LENGTH)) for name, value in capabilities.items()
    ]


def in_words(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {in_words(of)}" for name, of in value.items())
    return ", ".join(map(in_words, value)) if isinstance(value, list) else str(value)


def describe_outlook(server: TimedServer) -> list[SafeString]:
    """Return sentences about what happens to a server next, when, and what follows."""
    check = format_html("the next liveness check (every {})", describe_duration(conf().interval))
    if server.state in states.ALIVE:
        return describe_alive_outlook(server, check)
    if server.state == ServerState.INACTIVE:
        return [SafeString("Nothing. It has ended and cannot return. A restarted process registers as a new server.")]
    if server.state == ServerState.NOT_RUNNING:
        return [format_html("INACTIVE at {}. All its reports are refused.", check)]
    if server.lost_in > 0:
        return [
            SafeString("It finishes its jobs and reports its end."),
            format_html(
                "Otherwise it counts as lost in {}, and its jobs move.", seconds_until(server.lost_in, server.now)
            ),
        ]
    if not server.held:
        return [format_html("It holds no job. NOT_RUNNING at {} or the one after.", check)]
    gone = "It becomes NOT_RUNNING at the check after all its jobs have moved."
    if server.moves_in is None:
        return [
            SafeString("Its running jobs stay with it, because its restart strategy is NEVER. Claimed jobs move."),
            format_html("NOT_RUNNING at {}.", check),
        ]
    if server.moves_in > 0:
        name, whole = ("grace period", server.grace) if server.grace else ("timeout", server.timeout)
        when, lasts = seconds_until(server.moves_in, server.now), describe_duration(whole)
        return [
            format_html("In {} its {} of {} ends. Then its running jobs move.", when, name, lasts),
            SafeString(gone),
        ]
    return [format_html("Its remaining jobs move at {}.", check), SafeString(gone)]


def describe_alive_outlook(server: TimedServer, check: SafeString) -> list[SafeString]:
    if not conf().enabled:
        return [SafeString("Nothing. Liveness checks are switched off, so no silent server is disconnected.")]
    expected = expected_loss(server)
    if expected.by == "check_to_come":
        first = SafeString("Nothing until a liveness check runs. Then its silence continues to count.")
    elif expected.by == "brake":
        held = render_clause(describe_loss(server), server.now)
        first = format_html("Nothing yet. It is {}. Its next heartbeat frees it.", held)
    elif expected.by == "next_check":
        first = format_html("DISCONNECTED at {}, unless a heartbeat arrives before.", check)
    elif server.silent:
        first = format_html("{}, unless a heartbeat arrives before.", render_clause(describe_loss(server), server.now))
    else:
        every, limit = describe_duration(server.heartbeat_interval), describe_duration(server.timeout)
        first = format_html(
            "Nothing while a heartbeat arrives every {}. After {} of silence: DISCONNECTED.", every, limit
        )
    if server.type != ServerType.WORKER:
        return [first]
    return [first, SafeString(f"Its running jobs {describe_fate_of_jobs(server)}; claimed jobs move at once.")]
