"""Concerns about servers: what is wrong with them, and when they and their jobs change."""

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from controlplane.core.durations import describe_duration
from jobs.states import JobState
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
    SomeJobs,
    count_jobs,
    count_of,
)
from liveness import states
from liveness.selectors.next_transition import expected_loss
from liveness.selectors.servers import TimedServer
from liveness.states import ServerState, ServerType


def server_concerns(by_type: list[dict[str, Any]], servers: Iterable[TimedServer]) -> Iterable[Concern]:
    """Yield the servers that need attention, by kind of problem: a few by name, otherwise their number."""
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
    """Return what is wrong with a server that needs attention."""
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
    """Return when a silent server is marked DISCONNECTED. A time is given only if it is certain."""
    expected = expected_loss(server)
    match expected.by:
        case "nobody":
            return ("not DISCONNECTED, because liveness checks are switched off",)
        case "check_to_come":
            return ("DISCONNECTED when liveness checks run again",)
        case "brake" if expected.seconds is not None and expected.seconds > 0:
            return ("held by the brake, which releases the first in ", Remaining(expected.seconds))
        case "brake":
            return ("held by the brake, which releases some at each check",)
        case "next_check":
            return ("DISCONNECTED at the next liveness check",)
    assert expected.seconds is not None  # noqa: S101 - all other kinds have a time
    # The silent server may be the only executor, so nobody would notice its silence.
    otherwise = " if another executor runs" if server.type == ServerType.EXECUTOR and server.own else ""
    return ("DISCONNECTED in ", Remaining(expected.seconds), otherwise)


def describe_fate_of_jobs(server: TimedServer, *, one: bool = False) -> str:
    """Return a sentence about the running jobs of a server once it is lost. With `one`, it is about one job."""
    s = "s" if one else ""
    if server.grace is None:
        return f"then stay{s} with it (restart strategy NEVER)"
    if not server.grace:
        return f"then move{s} at once"
    return f"then wait{s} {describe_duration(server.grace)} for its grace period"


def missing_worker_concerns(
    figures: Mapping[str, Any], by_type: list[dict[str, Any]], *, includes_jobs: bool
) -> Iterable[Concern]:
    """Yield a concern if no worker is left, or no server at all. A worker that is silent or lost is another concern."""
    last = figures["incidents"]["last_worker"]
    waiting = figures["counts"].get(JobState.PENDING, 0) if includes_jobs else 0
    if any(row["type"] == ServerType.WORKER for row in by_type):
        return
    jobs = waiting or None
    before: Clause = ()
    if waiting:
        words = SomeJobs(f"{count_jobs(waiting)} {'waits' if waiting == 1 else 'wait'}", (("state", "PENDING"),))
        before = (words, " and there is no worker")
    if last is not None:
        seconds = figures["now"].timestamp() - last["at"]
        name = NamedServer(UUID(last["id"]), last["name"])
        end = " was lost " if last["is_lost"] else " ended "
        left: Clause = (": ",) if waiting else ("No worker is left: ",)
        parts = (*before, *left, name, ", the last one,", end, Elapsed(seconds), " ago")
        tone = NOTE if figures["in_maintenance"] else BAD if last["is_lost"] or waiting else WORRY
        yield Concern("no_worker", tone, parts, jobs=jobs, seconds=-seconds)
    elif waiting:
        yield Concern("no_worker", NOTE if figures["in_maintenance"] else BAD, before, jobs=jobs)
    elif by_type:
        yield Concern("no_worker", NOTE, ("There is no worker yet",))
    else:
        yield Concern("no_server", WORRY, ("No server is running: all have ended",))


def intended_concerns(by_type: list[dict[str, Any]]) -> Iterable[Concern]:
    """Yield notes on what operators do on purpose. They are no cause for alarm."""
    for kind, words in (("cordoned", "cordoned"), ("draining", "draining")):
        if number := sum(row[kind] for row in by_type):
            yield Concern(kind, NOTE, (f"{count_of(number, 'server')} {words}",), servers=number)
