"""The verdict on servers and work in plain words. Concerns are in the order in which they get worse."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from jobs.states import JobState
from jobs.verdict.clauses import BAD, NOTE, WORRY, Clause, Concern, Elapsed, Moment, NamedServer, count_jobs, count_of
from jobs.verdict.headlines import headline_of
from jobs.verdict.holds import hold_concerns
from jobs.verdict.servers import intended_concerns, missing_worker_concerns, server_concerns
from jobs.verdict.snapshots import snapshot_concerns
from jobs.verdict.work import work_concerns
from liveness.selectors.clock import is_check_late
from liveness.selectors.servers import TimedServer

INCIDENT_SHOWN_FOR = 7 * 86400
"""Seconds for which the last incident is shown."""


@dataclass(frozen=True)
class Verdict:
    tone: str
    """bad, worry or well; empty if no server has registered yet."""
    headline: str
    """The worst concern in a few words. Without concerns, the number of servers."""
    count: str
    """Sentence with the number of alive servers."""
    concerns: list[Concern]
    incident: Concern | None

    @property
    def causes(self) -> list[Concern]:
        """Return the concerns without notes. Concerns of the headline's tone come first."""
        return sorted(
            (concern for concern in self.concerns if concern.tone != NOTE), key=lambda concern: concern.tone != BAD
        )

    @property
    def notes(self) -> list[Concern]:
        return [concern for concern in self.concerns if concern.tone == NOTE]

    @property
    def text(self) -> str:
        causes, notes = ([f"{concern.text}." for concern in some] for some in (self.causes, self.notes))
        return " ".join([*causes, *([self.count] if self.count else []), *notes])


def build_verdict(
    figures: Mapping[str, Any],
    by_type: list[dict[str, Any]] | None,
    servers: Iterable[TimedServer],
    *,
    includes_jobs: bool = True,
) -> Verdict:
    """Return the verdict on the figures, the counts by type (None: servers are left out) and the servers.

    `figures` are those of `instance_figures()`, `by_type` those of `server_counts_by_type()`. `servers` are sorted by
    `attention_order()`. The concerns are in the order in which they get worse.
    """
    incidents = figures["incidents"] if includes_jobs else None
    concerns = list(check_concerns(figures))
    if by_type is not None:
        concerns += server_concerns(by_type, servers)
        concerns += missing_worker_concerns(figures, by_type, includes_jobs=includes_jobs)
    if incidents is not None:
        concerns += work_concerns(figures, incidents, by_type)
        concerns += hold_concerns(figures)
    concerns += snapshot_concerns(figures)
    if by_type is not None:
        concerns += intended_concerns(by_type)
    tones = {concern.tone for concern in concerns}
    tone = BAD if BAD in tones else WORRY if WORRY in tones else "well"
    count = describe_count(by_type) if by_type is not None else ""
    incident = None
    # An incident that is not over is already among the concerns above.
    if incidents is not None and incidents["incident"] and not any(row["lost"] for row in by_type or []):
        incident = describe_incident(incidents["incident"], figures["now"])
    verdict = Verdict(tone, "", count, concerns, incident)
    headline = headline_of(verdict.causes[0]) if verdict.causes else count or "Nothing needs attention."
    return replace(verdict, headline=headline)


def describe_count(by_type: list[dict[str, Any]]) -> str:
    """Return how many servers are alive. A server without its first heartbeat does not count as alive."""
    well, present, unheard = (sum(row[column] for row in by_type) for column in ("well", "present", "unheard"))
    if not present:
        return "No server is running."
    alive = f"{well:,} of {count_of(present, 'server')} alive."
    if unheard:
        return f"{alive} {unheard:,} {'has' if unheard == 1 else 'have'} not sent a heartbeat yet."
    return f"{alive} None is silent." if well == present else alive


def check_concerns(figures: Mapping[str, Any]) -> Iterable[Concern]:
    """Yield a concern if the liveness check does not run."""
    age = figures["check_age"]
    if age is None:
        yield Concern("check", WORRY, ("The liveness check has never run, so lost servers are not detected",))
    elif is_check_late(age):
        parts = ("The last liveness check was ", Elapsed(age), " ago, so lost servers are not detected")
        yield Concern("check", BAD, parts, seconds=-age)


def describe_incident(incident: dict[str, Any], now: datetime) -> Concern | None:
    """Return when servers were last lost and what happened to their jobs, or None if that is too long ago."""
    at = datetime.fromtimestamp(incident["at"], UTC)
    if (now - at).total_seconds() > INCIDENT_SHOWN_FOR:
        return None
    number, jobs = incident["servers"], incident["jobs"]
    who: Clause = (f"{number} servers lost",)
    if number == 1:
        who = (NamedServer(UUID(incident["first"]), incident["names"][0]), " lost")
    total = sum(jobs.values())
    parts: Clause = ("Last incident ", Moment(at), ": ", *who, ", ", describe_moved_jobs(number, total, jobs))
    return Concern("incident", NOTE, parts, jobs=total, servers=number, seconds=-(now - at).total_seconds())


def describe_moved_jobs(servers: int, total: int, jobs: dict[str, int]) -> str:
    if not total:
        return "it held no jobs" if servers == 1 else "they held no jobs"
    if set(jobs) == {JobState.COMPLETED}:
        return f"{count_jobs(total)} moved, all completed"
    ends = ", ".join(f"{count} {state}" for state, count in sorted(jobs.items()))
    return f"{count_jobs(total)} affected: {ends}"
