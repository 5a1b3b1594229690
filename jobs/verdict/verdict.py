"""How it all stands, in plain words, for the API and the pages: of servers and of work, what gets worse next first."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from jobs.states import JobState
from jobs.verdict.clauses import BAD, NOTE, WORRY, Clause, Concern, Elapsed, Moment, NamedServer, count_jobs, count_of
from jobs.verdict.servers import intended_concerns, server_concerns
from jobs.verdict.work import work_concerns
from liveness.selectors.clock import is_check_late
from liveness.selectors.servers import TimedServer

INCIDENT_SHOWN_FOR = 7 * 86400
"""Seconds for which the last incident is told."""


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


def build_verdict(
    figures: Mapping[str, Any],
    by_type: list[dict[str, Any]] | None,
    servers: Iterable[TimedServer],
    *,
    tells_of_jobs: bool = True,
) -> Verdict:
    """The verdict on what `instance_figures()`, `server_counts_by_type()` (None: servers are left out) and
    those servers say, what gets worse next first."""
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
        head = f"{well:,} of {count_of(present, 'server')} alive."
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
    elif is_check_late(age):
        parts = ("The last liveness check was ", Elapsed(age), " ago: lost servers go unnoticed")
        yield Concern("check", BAD, parts, seconds=-age)


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
