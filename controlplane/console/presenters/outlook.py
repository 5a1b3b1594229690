"""What is wrong with a server, since when, what happens to it next, and what follows from it."""

import re
from typing import Any

from django.utils.html import format_html
from django.utils.safestring import SafeString

from controlplane.console.presenters.clauses import render_clause
from controlplane.console.presenters.formatting import format_tags, link_to_server, seconds_until, shorten, time_since
from controlplane.core.durations import describe_duration
from jobs.verdict.servers import describe_fate_of_jobs, describe_loss
from liveness import states
from liveness.conf import conf
from liveness.selectors.next_transition import expected_loss
from liveness.selectors.servers import TimedServer
from liveness.states import ServerState, ServerType

CAPABILITY_LENGTH = 300
TAG = re.compile("<[^>]*>")
"""Of what was put together here: names in it are escaped."""


def present_server(server: TimedServer) -> dict[str, Any]:
    """A server as the tables show it. A silent one is never drawn as healthy: that is judged at this read."""
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
        # The time in a state is not the time that it is silent, cordoned or drained for.
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
    """The type that a server says it is; of one that only our own processes are expected to be, whether it is ours."""
    return type if own or type == ServerType.WORKER else f"{type}, external"


def describe_disconnection(server: TimedServer) -> SafeString | None:
    """When a silent server is DISCONNECTED."""
    if not server.silent or server.state not in states.ALIVE:
        return None
    return render_clause(describe_loss(server), server.now)


def list_loads(metrics: dict[str, Any]) -> list[tuple[str, int]]:
    """How busy its machine is, in per cent; servers may say what they like."""
    readings = (("CPU", metrics.get("cpu_percent")), ("memory", metrics.get("memory_percent")))
    return [(word, round(value)) for word, value in readings if isinstance(value, int | float)]


def list_capabilities(capabilities: dict[str, Any]) -> list[tuple[str, str]]:
    """What a server says it can do, in words; servers may say what they like."""
    return [
        (name.replace("_", " "), shorten(in_words(value), CAPABILITY_LENGTH)) for name, value in capabilities.items()
    ]


def in_words(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {in_words(of)}" for name, of in value.items())
    return ", ".join(map(in_words, value)) if isinstance(value, list) else str(value)


def describe_outlook(server: TimedServer) -> list[SafeString]:
    """What happens to a server next, when, and what follows from that; a sentence each."""
    check = format_html("the next liveness check (every {})", describe_duration(conf().interval))
    if server.state in states.ALIVE:
        return describe_alive_outlook(server, check)
    if server.state == ServerState.INACTIVE:
        return [SafeString("Nothing: it has ended and never comes back. A restart is another server.")]
    if server.state == ServerState.NOT_RUNNING:
        return [format_html("INACTIVE at {}. Whatever it still reports is refused.", check)]
    if server.lost_in > 0:
        return [
            SafeString("It finishes what it holds and reports its end."),
            format_html(
                "If it does not, it counts as lost in {}, and its jobs move.", seconds_until(server.lost_in, server.now)
            ),
        ]
    if not server.held:
        return [format_html("It holds nothing: NOT_RUNNING at {}, or the one after.", check)]
    gone = "Then it is NOT_RUNNING, in the check after, once nothing is left to move."
    if server.moves_in is None:
        return [
            SafeString("Its running jobs stay with it: its restart strategy is NEVER. Claimed ones move."),
            format_html("NOT_RUNNING at {}.", check),
        ]
    if server.moves_in > 0:
        name, whole = ("grace period", server.grace) if server.grace else ("timeout", server.timeout)
        when, lasts = seconds_until(server.moves_in, server.now), describe_duration(whole)
        return [
            format_html("In {} its {} of {} has passed: its running jobs move.", when, name, lasts),
            SafeString(gone),
        ]
    return [format_html("What it still holds moves at {}.", check), SafeString(gone)]


def describe_alive_outlook(server: TimedServer, check: SafeString) -> list[SafeString]:
    if not conf().enabled:
        return [SafeString("Nothing: liveness checks are switched off, so no server is disconnected for silence.")]
    expected = expected_loss(server)
    if expected.by == "check_to_come":
        first = SafeString("Nothing until a liveness check runs: then its silence is counted on from where it was.")
    elif expected.by == "brake":
        held = render_clause(describe_loss(server), server.now)
        first = format_html("Nothing yet, it is {}; its next heartbeat frees it.", held)
    elif expected.by == "next_check":
        first = format_html("DISCONNECTED at {}, unless a heartbeat comes before.", check)
    elif server.silent:
        first = format_html("{}, unless a heartbeat comes before.", render_clause(describe_loss(server), server.now))
    else:
        every, limit = describe_duration(server.heartbeat_interval), describe_duration(server.timeout)
        first = format_html("Nothing while it heartbeats every {}. After {} of silence: DISCONNECTED.", every, limit)
    if server.type != ServerType.WORKER:
        return [first]
    return [first, SafeString(f"Its running jobs {describe_fate_of_jobs(server)}; claimed ones move at once.")]
