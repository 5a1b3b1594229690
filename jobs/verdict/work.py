"""Concerns about jobs: jobs that will fail, find no worker, do not move, have failed, or wait for long."""

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
"""Waiting time of the oldest job in seconds. Above the first value it is a note, above the second a worry."""


def work_concerns(
    figures: Mapping[str, Any], incidents: Mapping[str, Any], by_type: list[dict[str, Any]] | None
) -> Iterable[Concern]:
    """Yield concerns about jobs that will fail, find no worker, do not move, have failed, or wait for long."""
    in_maintenance = figures["in_maintenance"]
    waiting = figures["counts"].get(JobState.PENDING, 0)
    if not in_maintenance:  # during maintenance no job fails because of missing workers
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
    yield from flagged_jobs(figures)
    if quarantined := incidents["quarantined"]:
        words = SomeJobs(count_up_to_limit(quarantined), page="quarantine")
        verb = "waits" if quarantined == 1 else "wait"
        yield Concern("quarantine", WORRY, (words, f" in quarantine {verb} for an operator"), jobs=quarantined)
    yield from failures(incidents)
    if not is_idle and (seconds := figures["waiting"] or 0) >= LONG_WAIT:
        tone = WORRY if seconds >= TOO_LONG_WAIT and not in_maintenance else NOTE
        oldest = SomeJobs("oldest waiting job", (("state", "PENDING"), ("sort", "oldest")))
        yield Concern("oldest_waiting", tone, ("The ", oldest, " has waited ", Elapsed(seconds)), seconds=-seconds)


def kept_by_maintenance(figures: Mapping[str, Any], workers: list[dict[str, Any]]) -> list[str]:
    """Return the clusters in maintenance whose workers will take work again when it ends."""
    in_maintenance = {entry["cluster"] for entry in figures["maintenances"]}
    able = {row["cluster"] for row in workers if row["well"] > row["cordoned"] + row["draining"]}
    return sorted(in_maintenance & able)


def describe_clusters(clusters: list[str]) -> str:
    if len(clusters) > SHOWN_OF_A_KIND:
        return f"{len(clusters)} clusters"
    return f"cluster{'s' if len(clusters) > 1 else ''} {', '.join(clusters)}"


def jobs_to_be_failed(rows: list[dict[str, Any]]) -> Iterable[Concern]:
    """Yield the jobs that no alive worker may run, by their tags, with the time until they fail."""

    def left(seconds: float) -> Clause:
        return (" in ", Remaining(seconds)) if seconds > 0 else (" at the next recovery sweep",)

    def fail(jobs: int, first: str | None = None) -> SomeJobs:
        words = f"{count_up_to_limit(jobs)} {'fails' if jobs == 1 else 'fail'}"
        return SomeJobs(words, (("state", JobState.PENDING.value),), only=first if jobs == 1 else None)

    if len(rows) > SHOWN_OF_A_KIND:
        jobs, soonest = sum(row["jobs"] for row in rows), rows[0]["seconds"]
        unless = f" unless workers with their tags become available ({len(rows)} sets of tags), the first"
        yield Concern("no_matching_worker", BAD, (fail(jobs), unless, *left(soonest)), jobs=jobs, seconds=soonest)
    else:
        for row in rows:
            parts = (
                fail(row["jobs"], row.get("first")),
                *left(row["seconds"]),
                f" unless a worker {having(row['tags'])} becomes available",
            )
            yield Concern("no_matching_worker", BAD, parts, jobs=row["jobs"], seconds=row["seconds"])


def having(tags: list[str]) -> str:
    return f"with {', '.join(tags)}" if tags else "of any kind"


FLAGGED = {
    Flag.HELD_BY_LOST_SERVER: ("run on a lost server that keeps them (NEVER): fail or resubmit by hand", "runs"),
    Flag.STALE_RUNNER: ("run without heartbeats, and nothing ends them: fail or resubmit by hand", "runs"),
    Flag.STALE_CLAIM: ("are claimed without heartbeats, and nothing requeues them: requeue by hand", "is"),
    Flag.WAITS_FOR_TAGS: ("wait for a worker {having}", "waits"),
    Flag.WAITS_FOR_SLOTS: ("wait for a worker {having}", "waits"),
    Flag.REFUSED_BY_ALL: ("wait because every worker {having} refused them", "waits"),
    Flag.WAITS_AFTER_LOSS: ("wait for another worker {having} (the previous one is gone)", "waits"),
    Flag.DEADLINE_MISSED: ("are past their deadline", "is"),
}
"""Words for several flagged jobs, and the verb for one."""


HELD = {Flag.HELD_BY_LOST_SERVER, Flag.STALE_RUNNER, Flag.STALE_CLAIM}
"""Flags of jobs that a server holds. The other flagged jobs wait."""


def flagged_jobs(figures: Mapping[str, Any]) -> Iterable[Concern]:
    """Yield jobs that wait for a person to act, by flag and by the tags that they need."""
    shown: Counter[Flag] = Counter()
    for row in figures["flagged_tags"] or []:
        flag, jobs = Flag(row["flag"]), row["jobs"]
        shown[flag] += 1
        if shown[flag] > SHOWN_OF_A_KIND:
            continue
        words, verb = FLAGGED[flag]
        if jobs == 1:
            words = f"{verb} {words.partition(' ')[2]}".replace(" them", " it").replace(" their", " its")
        only = row.get("first") if jobs == 1 else None
        some = SomeJobs(count_up_to_limit(jobs), (("flag", flag.value),), only=only)
        tone = BAD if flag in HELD else WORRY
        yield Concern(flag.value, tone, (some, f" {words.format(having=having(row['tags']))}"), jobs=jobs)
    for flag, sets in shown.items():
        if sets > SHOWN_OF_A_KIND:
            jobs = figures["flags"][flag]
            all_of_them = SomeJobs(f"In all {count_up_to_limit(jobs)}", (("flag", flag.value),))
            parts = (all_of_them, f" of {sets} sets of tags wait for the same reason")
            yield Concern(flag.value, WORRY, parts, jobs=jobs)


def failures(incidents: Mapping[str, Any]) -> Iterable[Concern]:
    """Yield how many jobs failed in five minutes, compared with the hour before."""
    lately, before = incidents["failed_lately"], incidents["failed_before"]
    if not lately:
        return
    some = SomeJobs(count_up_to_limit(lately), (("state", JobState.FAILED.value), ("within", "15m")))
    if lately >= FAILURES_NOTICED and lately / 5 > 2 * before / 60:
        # Both numbers get a unit that people can compare, because 0.017 a minute is hard to read as one an hour.
        usual = (
            f"{before or 'none'} in the hour before"
            if before < 12
            else f"{before / 12:.0f} every 5 min in the hour before"
        )
        yield Concern("failures", WORRY, (some, f" failed in the last 5 min, {usual}"), jobs=lately)
    else:
        yield Concern("failures", NOTE, (some, " failed in the last 5 min"), jobs=lately)
