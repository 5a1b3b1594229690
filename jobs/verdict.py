"""How it all stands, in plain words, for the API and the pages: of servers and of work, what gets worse next first.

A clause is told in parts, so that a page makes links and running times of them and the API a text.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import UUID

from controlplane.core.durations import describe_duration
from jobs import selectors
from jobs.states import Flag, JobState
from liveness import selectors as liveness
from liveness import states
from liveness.selectors import TimedServer
from liveness.states import ServerState, ServerType

SHOWN_OF_A_KIND = 3
"""Of more it is said how many there are."""
FAILURES_NOTICED = 3
LONG_WAIT, TOO_LONG_WAIT = 60, 600
"""Seconds that the oldest waiting job waits before it is told, and before it is a worry."""
INCIDENT_SHOWN_FOR = 7 * 86400
"""Seconds for which the last incident is told."""


class NamedServer(NamedTuple):
    id: UUID
    name: str


class Elapsed(NamedTuple):
    """Seconds that have passed."""

    seconds: float


class Remaining(NamedTuple):
    """Seconds to go."""

    seconds: float


class Moment(NamedTuple):
    at: datetime


class SomeJobs(NamedTuple):
    """Words for jobs that a list shows, and what it is filtered by."""

    words: str
    query: tuple[tuple[str, str], ...] = ()
    page: str = "jobs"


Part = str | NamedServer | Elapsed | Remaining | Moment | SomeJobs
Clause = tuple[Part, ...]
BAD, WORRY, NOTE = "bad", "worry", "note"


@dataclass(frozen=True)
class Concern:
    """Something that is not as on a quiet day. What is intended, or only worth knowing, has the tone `note`."""

    kind: str
    tone: str
    parts: Clause
    jobs: int | None = None
    servers: int | None = None
    seconds: float | None = None
    """To what happens next."""

    @property
    def text(self) -> str:
        return format_plain(self.parts)


@dataclass(frozen=True)
class Verdict:
    tone: str
    """bad, worry, well; or empty: nothing has registered yet."""
    head: str
    concerns: list[Concern]
    incident: Concern | None

    @property
    def text(self) -> str:
        return " ".join([self.head, *(f"{concern.text}." for concern in self.concerns)])


def format_plain(parts: Clause) -> str:
    """A clause as a text."""
    return "".join(format_part(part) for part in parts)


def format_part(part: Part) -> str:
    match part:
        case NamedServer():
            return part.name
        case Elapsed() | Remaining():
            return describe_duration(part.seconds)
        case Moment():
            return f"{part.at:%Y-%m-%d %H:%M} UTC"
        case SomeJobs():
            return part.words
        case _:
            return part


def count_of(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def count_jobs(count: int) -> str:
    return count_of(count, "job") if count else "no jobs"


def build_verdict(
    figures: Mapping[str, Any],
    by_type: list[dict[str, Any]] | None,
    servers: Iterable[TimedServer],
    *,
    tells_of_jobs: bool = True,
) -> Verdict:
    """The verdict on what `selectors.instance_figures()`, `liveness.server_counts_by_type()` (None: nothing is told of
    servers) and those servers say, what gets worse next first."""
    incidents = figures["incidents"] if tells_of_jobs else None
    concerns = list(check_concerns(figures))
    if by_type is not None:
        concerns += server_concerns(by_type, servers)
    if incidents is not None:
        concerns += work_concerns(figures, incidents, by_type)
    if by_type is not None:
        concerns += intended_concerns(by_type)
    head, tone = "", "well"
    if by_type is not None:
        well, present = sum(row["well"] for row in by_type), sum(row["present"] for row in by_type)
        head = f"{well} of {count_of(present, 'server')} alive."
        if not present:
            head, tone = "No server is running: all have ended.", WORRY
        elif well == present:
            head += " Every heartbeat is fresh."
    tones = {concern.tone for concern in concerns}
    tone = BAD if BAD in tones else WORRY if WORRY in tones else tone
    incident = None
    # Of one that is not over the sentences above tell.
    if incidents is not None and incidents["incident"] and not any(row["lost"] for row in by_type or []):
        incident = describe_incident(incidents["incident"], figures["now"])
    return Verdict(tone, head, concerns, incident)


def check_concerns(figures: Mapping[str, Any]) -> Iterable[Concern]:
    """Whether anybody watches."""
    age = figures["check_age"]
    if age is None:
        yield Concern("check", WORRY, ("The liveness check has never run: lost servers go unnoticed",))
    elif liveness.is_check_late(age):
        parts = ("The last liveness check was ", Elapsed(age), " ago: lost servers go unnoticed")
        yield Concern("check", BAD, parts, seconds=-age)


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
        expected = liveness.expected_loss(server)
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
    expected = liveness.expected_loss(server)
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


def work_concerns(
    figures: Mapping[str, Any], incidents: Mapping[str, Any], by_type: list[dict[str, Any]] | None
) -> Iterable[Concern]:
    """Jobs about to fail, that nobody takes, that stand still, that failed, that wait for long."""
    in_maintenance = figures["maintenance"] is not None
    waiting = figures["counts"].get(JobState.PENDING, 0)
    if not in_maintenance:  # no job fails for want of a worker meanwhile, and none is to be taken
        yield from jobs_to_be_failed(figures["to_be_failed"] or [])
    is_idle = False
    if by_type is not None and not in_maintenance:
        workers = [row for row in by_type if row["type"] == ServerType.WORKER]
        is_idle = bool(waiting) and not any(row["takes_work"] for row in workers)
        waits = SomeJobs(f"{count_jobs(waiting)} {'waits' if waiting == 1 else 'wait'}", (("state", "PENDING"),))
        if is_idle and workers:
            yield Concern("no_worker_takes_work", BAD, (waits, " and no worker takes work"), jobs=waiting)
        elif is_idle:
            yield Concern("no_worker", BAD, (waits, " and there is no worker at all"), jobs=waiting)
        elif by_type and not workers:
            yield Concern("no_worker", NOTE, ("There is no worker yet",))
    yield from flagged_jobs(figures)
    if quarantined := incidents["quarantined"]:
        words = SomeJobs(count_up_to_limit(quarantined), page="quarantine")
        verb = "waits" if quarantined == 1 else "wait"
        yield Concern("quarantine", WORRY, (words, f" in quarantine {verb} for a look"), jobs=quarantined)
    yield from failures(incidents)
    if not is_idle and (seconds := figures["waiting"] or 0) >= LONG_WAIT:
        tone = WORRY if seconds >= TOO_LONG_WAIT and not in_maintenance else NOTE
        oldest = SomeJobs("oldest waiting job", (("state", "PENDING"),))
        yield Concern("oldest_waiting", tone, ("The ", oldest, " waits for ", Elapsed(seconds)), seconds=-seconds)


def jobs_to_be_failed(rows: list[dict[str, Any]]) -> Iterable[Concern]:
    """Those that no alive worker may have, by their tags, with the time that is left."""

    def left(seconds: float) -> Clause:
        return (" in ", Remaining(seconds)) if seconds > 0 else (" at the next recovery sweep",)

    def fail(jobs: int) -> SomeJobs:
        words = f"{count_up_to_limit(jobs)} {'fails' if jobs == 1 else 'fail'}"
        return SomeJobs(words, (("state", JobState.PENDING.value),))

    if len(rows) > SHOWN_OF_A_KIND:
        jobs, soonest = sum(row["jobs"] for row in rows), rows[0]["seconds"]
        unless = f" unless workers with their tags come ({len(rows)} sets of tags), the first"
        yield Concern("no_matching_worker", BAD, (fail(jobs), unless, *left(soonest)), jobs=jobs, seconds=soonest)
    else:
        for row in rows:
            parts = (fail(row["jobs"]), *left(row["seconds"]), f" unless a worker {having(row['tags'])} comes")
            yield Concern("no_matching_worker", BAD, parts, jobs=row["jobs"], seconds=row["seconds"])


def having(tags: list[str]) -> str:
    return f"with {', '.join(tags)}" if tags else "of any kind"


FLAGGED = {
    Flag.HELD_BY_LOST_SERVER: ("run on a lost server that keeps them (NEVER): fail or resubmit by hand", "runs"),
    Flag.WAITS_FOR_TAGS: ("wait for a worker {having}", "waits"),
    Flag.REFUSED_BY_ALL: ("wait though every worker {having} refused", "waits"),
    Flag.WAITS_AFTER_LOSS: ("wait for another worker {having}: one that had it is gone", "waits"),
}
"""What stands still, of several jobs; and the verb of one."""


def flagged_jobs(figures: Mapping[str, Any]) -> Iterable[Concern]:
    """Jobs that stand still until somebody acts, by why, and by what they wait for."""
    shown: Counter[Flag] = Counter()
    for row in figures["flagged_tags"] or []:
        flag, jobs = Flag(row["flag"]), row["jobs"]
        shown[flag] += 1
        if shown[flag] > SHOWN_OF_A_KIND:
            continue
        words, verb = FLAGGED[flag]
        if jobs == 1:
            words = f"{verb}{words[len(verb) - 1 :]}".replace("keeps them", "keeps it")
        state = JobState.RUNNING if flag == Flag.HELD_BY_LOST_SERVER else JobState.PENDING
        some = SomeJobs(count_up_to_limit(jobs), (("state", state.value),))
        tone = BAD if flag == Flag.HELD_BY_LOST_SERVER else WORRY
        yield Concern(flag.value, tone, (some, f" {words.format(having=having(row['tags']))}"), jobs=jobs)
    for flag, sets in shown.items():
        if sets > SHOWN_OF_A_KIND:
            jobs = figures["flags"][flag]
            more = f"In all {count_up_to_limit(jobs)} of {sets} sets of tags wait like that"
            yield Concern(flag.value, WORRY, (more,), jobs=jobs)


def count_up_to_limit(jobs: int) -> str:
    """A number of jobs; of so many no more were counted."""
    return f"{jobs:,}+ jobs" if jobs >= selectors.COUNT_LIMIT else count_jobs(jobs)


def failures(incidents: Mapping[str, Any]) -> Iterable[Concern]:
    """How many jobs failed a minute, against the hour before."""
    lately, before = incidents["failed_lately"], incidents["failed_before"]
    if not lately:
        return
    some = SomeJobs(count_up_to_limit(lately), (("state", JobState.FAILED.value),))
    if lately >= FAILURES_NOTICED and lately / 5 > 2 * before / 60:
        rates = f" failed in the last 5 min: {lately / 5:.2g} a minute, {before / 60:.2g} in the hour before"
        yield Concern("failures", WORRY, (some, rates), jobs=lately)
    else:
        yield Concern("failures", NOTE, (some, " failed in the last 5 min"), jobs=lately)


def intended_concerns(by_type: list[dict[str, Any]]) -> Iterable[Concern]:
    """What operators do is told, and is no cause for alarm."""
    for kind, words in (("cordoned", "cordoned"), ("draining", "draining")):
        if number := sum(row[kind] for row in by_type):
            yield Concern(kind, NOTE, (f"{count_of(number, 'server')} {words}",), servers=number)


def describe_incident(incident: dict[str, Any], now: datetime) -> Concern | None:
    """When servers were lost last, and what became of their jobs. None: too long ago."""
    at = datetime.fromtimestamp(incident["at"], UTC)
    if (now - at).total_seconds() > INCIDENT_SHOWN_FOR:
        return None
    number, jobs = incident["servers"], incident["jobs"]
    who: Clause = (f"{number} servers lost",)
    if number == 1:
        who = (NamedServer(UUID(incident["first"]), incident["names"][0]), " lost")
    total = sum(jobs.values())
    parts: Clause = ("Last incident ", Moment(at), ": ", *who, ", ", describe_moved_jobs(total, jobs))
    return Concern("incident", NOTE, parts, jobs=total, servers=number, seconds=-(now - at).total_seconds())


def describe_moved_jobs(total: int, jobs: dict[str, int]) -> str:
    if not total:
        return "no job was with it"
    if set(jobs) == {JobState.COMPLETED}:
        return f"{count_jobs(total)} moved, all completed"
    ends = ", ".join(f"{count} {state}" for state, count in sorted(jobs.items()))
    return f"{count_jobs(total)} affected: {ends}"
