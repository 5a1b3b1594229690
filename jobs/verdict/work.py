"""What is wrong with work: jobs about to fail, that nobody takes, that stand still, that failed, that wait for long."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from jobs.states import Flag, JobState
from jobs.verdict.clauses import (
    BAD,
    NOTE,
    SHOWN_OF_A_KIND,
    WORRY,
    Clause,
    Concern,
    Elapsed,
    Remaining,
    SomeJobs,
    count_jobs,
    count_up_to_limit,
)
from liveness.states import ServerType

FAILURES_NOTICED = 3
LONG_WAIT, TOO_LONG_WAIT = 60, 600
"""Seconds that the oldest waiting job waits before it is told, and before it is a worry."""


def work_concerns(
    figures: Mapping[str, Any], incidents: Mapping[str, Any], by_type: list[dict[str, Any]] | None
) -> Iterable[Concern]:
    """Jobs about to fail, that nobody takes, that stand still, that failed, that wait for long."""
    in_maintenance = figures["in_maintenance"]
    waiting = figures["counts"].get(JobState.PENDING, 0)
    if not in_maintenance:  # no job fails for want of a worker meanwhile, and none is to be taken
        yield from jobs_to_be_failed(figures["to_be_failed"] or [])
    is_idle = False
    if by_type is not None and not in_maintenance:
        workers = [row for row in by_type if row["type"] == ServerType.WORKER]
        is_idle = bool(waiting) and not any(row["takes_work"] for row in workers)
        waits = SomeJobs(f"{count_jobs(waiting)} {'waits' if waiting == 1 else 'wait'}", (("state", "PENDING"),))
        if is_idle and (clusters := kept_by_maintenance(figures, workers)):
            parts = (waits, f" for the maintenance of {describe_clusters(clusters)} to end")
            yield Concern("waits_for_maintenance", NOTE, parts, jobs=waiting)
        elif is_idle and workers:
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


def kept_by_maintenance(figures: Mapping[str, Any], workers: list[dict[str, Any]]) -> list[str]:
    """The clusters in maintenance with workers that take work again when it ends."""
    in_maintenance = {entry["cluster"] for entry in figures["maintenances"]}
    able = {row["cluster"] for row in workers if row["well"] > row["cordoned"] + row["draining"]}
    return sorted(in_maintenance & able)


def describe_clusters(clusters: list[str]) -> str:
    if len(clusters) > SHOWN_OF_A_KIND:
        return f"{len(clusters)} clusters"
    return f"cluster{'s' if len(clusters) > 1 else ''} {', '.join(clusters)}"


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


def failures(incidents: Mapping[str, Any]) -> Iterable[Concern]:
    """How many jobs failed in five minutes, against the hour before."""
    lately, before = incidents["failed_lately"], incidents["failed_before"]
    if not lately:
        return
    some = SomeJobs(count_up_to_limit(lately), (("state", JobState.FAILED.value),))
    if lately >= FAILURES_NOTICED and lately / 5 > 2 * before / 60:
        # In the same measure, where there is something to measure: nobody reads 0.017 a minute as one.
        usual = (
            f"{before or 'none'} in the hour before"
            if before < 12
            else f"{before / 12:.0f} every 5 min in the hour before"
        )
        yield Concern("failures", WORRY, (some, f" failed in the last 5 min, {usual}"), jobs=lately)
    else:
        yield Concern("failures", NOTE, (some, " failed in the last 5 min"), jobs=lately)
