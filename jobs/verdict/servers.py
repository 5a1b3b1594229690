"""What is wrong with servers, and when what happens to them and to their jobs."""

from collections.abc import Iterable
from typing import Any

from controlplane.core.durations import describe_duration
from jobs.verdict.clauses import (
    BAD,
    NOTE,
    SHOWN_OF_A_KIND,
    WORRY,
    Clause,
    Concern,
    Elapsed,
    NamedServer,
    Remaining,
    count_jobs,
    count_of,
)
from liveness import states
from liveness.selectors.next_transition import expected_loss
from liveness.selectors.servers import TimedServer
from liveness.states import ServerState, ServerType


def server_concerns(by_type: list[dict[str, Any]], servers: Iterable[TimedServer]) -> Iterable[Concern]:
    """Servers that need attention, by what is wrong with them: a few by name, of more how many."""
    kinds: dict[str, list[TimedServer]] = {"silent": [], "lost": [], "ending": []}
    for server in servers:
        if server.needs_attention:
            kinds[kind_of_concern(server)].append(server)
    words = {"silent": "are silent", "lost": "are lost", "ending": "are about to end"}
    columns = {"silent": "silent_ones", "lost": "lost", "ending": "ending"}
    for kind, some in kinds.items():
        number = sum(row[columns[kind]] for row in by_type)
        tone = BAD if kind == "lost" else WORRY
        if number > SHOWN_OF_A_KIND:
            first: Clause = ("; first ", *describe_concern(some[0])) if some else ()
            parts = (f"{count_of(number, 'server')} {words[kind]}", *first)
            yield Concern(kind, tone, parts, servers=number, seconds=next_change(some[0]) if some else None)
        else:
            for server in some:
                held, seconds = server.held or None, next_change(server)
                yield Concern(kind, tone, describe_concern(server), jobs=held, servers=1, seconds=seconds)


def kind_of_concern(server: TimedServer) -> str:
    if server.state in states.ALIVE:
        return "silent"
    return "lost" if server.state in states.LOST else "ending"


def next_change(server: TimedServer) -> float | None:
    if server.state in states.ALIVE:
        expected = expected_loss(server)
        return expected.seconds
    return server.moves_in


def describe_concern(server: TimedServer) -> Clause:
    """What is wrong with a server that needs attention."""
    name = NamedServer(server.pk, server.name)
    if server.state in states.ALIVE:
        then = (
            f", {count_jobs(server.held)} {describe_fate_of_jobs(server, one=server.held == 1)}" if server.held else ""
        )
        return (name, " silent for ", Elapsed(server.silence), ": ", *describe_loss(server), then)
    if server.state == ServerState.TERMINATING and server.lost_in > 0:
        return (name, f" is TERMINATING and holds {count_jobs(server.held)}")
    if not server.held:
        return (name, f" is {server.state} and holds no job")
    if server.moves_in is None:
        return (name, f" is {server.state} and keeps {count_jobs(server.held)} (NEVER)")
    moves = f" is {server.state}: {count_jobs(server.held)} {'moves' if server.held == 1 else 'move'} "
    return (
        (name, moves, "in ", Remaining(server.moves_in)) if server.moves_in > 0 else (name, moves, "at the next check")
    )


def describe_loss(server: TimedServer) -> Clause:
    """When a silent server is DISCONNECTED: never a time that nobody keeps."""
    expected = expected_loss(server)
    match expected.by:
        case "nobody":
            return ("not DISCONNECTED, for liveness checks are switched off",)
        case "check_to_come":
            return ("DISCONNECTED once liveness checks run again",)
        case "brake" if expected.seconds is not None and expected.seconds > 0:
            return ("held by the brake, which lets the first go in ", Remaining(expected.seconds))
        case "brake":
            return ("held by the brake, which lets some go at each check",)
        case "next_check":
            return ("DISCONNECTED at the next liveness check",)
    assert expected.seconds is not None  # noqa: S101 - of all others it is known
    # Who is to notice is the silent one itself.
    otherwise = " if another executor runs" if server.type == ServerType.EXECUTOR and server.own else ""
    return ("DISCONNECTED in ", Remaining(expected.seconds), otherwise)


def describe_fate_of_jobs(server: TimedServer, *, one: bool = False) -> str:
    """What then becomes of the running jobs, or of the one job, of a server that is lost."""
    s = "s" if one else ""
    if server.grace is None:
        return f"then stay{s} with it (restart strategy NEVER)"
    if not server.grace:
        return f"then move{s} at once"
    return f"then wait{s} {describe_duration(server.grace)} for its grace period"


def intended_concerns(by_type: list[dict[str, Any]]) -> Iterable[Concern]:
    """What operators do is told, and is no cause for alarm."""
    for kind, words in (("cordoned", "cordoned"), ("draining", "draining")):
        if number := sum(row[kind] for row in by_type):
            yield Concern(kind, NOTE, (f"{count_of(number, 'server')} {words}",), servers=number)
