"""Concerns about holds: what is on hold, for how long, and how many jobs wait for it."""

from collections.abc import Iterable, Mapping
from typing import Any

from jobs.conf import alerts_conf
from jobs.verdict.clauses import (
    NOTE,
    SHOWN_OF_A_KIND,
    WORRY,
    Clause,
    Concern,
    Elapsed,
    SomeJobs,
    count_of,
    count_up_to_limit,
)

KIND = "hold_open"


def hold_concerns(figures: Mapping[str, Any]) -> Iterable[Concern]:
    """Yield the holds in force, oldest first. A hold is a worry when it is older than ALERTS["HOLD_OPEN"]."""
    holds = figures["holds"]
    if len(holds) <= SHOWN_OF_A_KIND:
        for hold in holds:
            yield build_concern(hold, describe_hold(hold), hold["jobs"])
        return
    oldest, jobs = holds[0], sum(hold["jobs"] for hold in holds)
    parts = (f"{count_of(oldest['total'], 'hold')} are in force, the oldest for ", Elapsed(oldest["seconds"]))
    yield build_concern(oldest, (*parts, ": ", describe_wait(jobs)), jobs)


def build_concern(oldest: Mapping[str, Any], parts: Clause, jobs: int) -> Concern:
    tone = WORRY if is_old(oldest) else NOTE
    return Concern(KIND, tone, parts, jobs=jobs, seconds=-oldest["seconds"])


def is_old(hold: Mapping[str, Any]) -> bool:
    """Return True if a hold has been in force for longer than ALERTS["HOLD_OPEN"]."""
    limit = alerts_conf().hold_open
    return limit is not None and hold["seconds"] > limit


def describe_hold(hold: Mapping[str, Any]) -> Clause:
    """Return what is on hold, for how long, and how many jobs wait for it."""
    subject = f"{hold['kind'].capitalize()} {hold['name'] or hold['value']}"
    return (f"{subject} has been on hold for ", Elapsed(hold["seconds"]), ": ", describe_wait(hold["jobs"]))


def describe_wait(jobs: int) -> SomeJobs:
    return SomeJobs(f"{count_up_to_limit(jobs)} {'waits' if jobs == 1 else 'wait'}", page="holds")
