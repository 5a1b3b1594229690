"""Unique jobs: a submission with a unique key finds a job that is already there. It is judged at submission only.

Submissions of one key run one after the other, under an advisory lock. So there is exactly one job, however many calls
come at once. No unique index is involved: a lost job that waits again must never be in the way of another one.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any
from uuid import UUID

from controlplane.core.transactions import retried_atomic
from jobs.choices import OnConflict, UniqueWhile
from jobs.errors import AlreadyStarted, DuplicateJob, JobUnknown
from jobs.models import WorkerJob
from jobs.selectors.submitted import Submitted
from jobs.services import changes, submission
from jobs.sql import sql
from liveness.models import ApiToken


def submit_jobs(owner: ApiToken, jobs: list[dict[str, Any]], **options: Any) -> list[Submitted]:
    """Submit jobs, all or none, and return them in order. A job with `unique` may be one that is already there.

    `options` and errors are those of `submission.submit_jobs`. Raises DuplicateJob if `on_conflict` is `refuse`.
    """
    if not any("unique" in job for job in jobs):
        return submission.submit_jobs(owner, jobs, **options)
    return submit_unique_jobs(owner, jobs, options)


@retried_atomic
def submit_unique_jobs(owner: ApiToken, jobs: list[dict[str, Any]], options: dict[str, Any]) -> list[Submitted]:
    """Submit the jobs that are not there yet, and change or return the others."""
    namespace, is_limited = options.get("namespace") or owner.namespace, options.get("is_limited", True)
    keys = [job["unique"]["key"] for job in jobs if "unique" in job]
    sql.lock_unique_keys.fetch_rows(owner=owner.pk, keys=keys)
    # A repeated call, known by its idempotency key, returns its own job.
    repeated = set(known_keys(owner, jobs))
    submitted: dict[int, Submitted] = {}
    for places in each_key_once(jobs):
        new = []
        for place in places:
            job = jobs[place]
            is_judged = "unique" in job and job.get("key") not in repeated
            found = take_duplicate(owner, namespace, job, is_limited=is_limited) if is_judged else None
            if found is None:
                new.append(place)
            else:
                submitted[place] = Submitted(found, False, None, is_duplicate=True)
        if new:
            stored = submission.submit_jobs(owner, [jobs[place] for place in new], **options)
            submitted.update(zip(new, stored, strict=True))
    return [submitted[place] for place in range(len(jobs))]


def each_key_once(jobs: list[dict[str, Any]]) -> Iterator[list[int]]:
    """Yield the places of the jobs in groups with each unique key once. A later group finds jobs of earlier ones."""
    groups: list[list[int]] = [[]]
    seen: Counter[str] = Counter()
    for place, job in enumerate(jobs):
        number = 0
        if "unique" in job:
            number = seen[job["unique"]["key"]]
            seen[job["unique"]["key"]] += 1
        if number == len(groups):
            groups.append([])
        groups[number].append(place)
    yield from groups


def known_keys(owner: ApiToken, jobs: list[dict[str, Any]]) -> Iterator[str | None]:
    """Yield the idempotency keys of these jobs that belong to jobs already."""
    keys = [job["key"] for job in jobs if "key" in job]
    if keys:
        yield from WorkerJob.objects.filter(owner=owner, key__in=keys).values_list("key", flat=True)


def take_duplicate(owner: ApiToken, namespace: str, job: dict[str, Any], *, is_limited: bool) -> UUID | None:
    """Return the job that is already there, changed if `on_conflict` asks for it. None: the job must be stored.

    With `is_limited` the limits of the owner apply to the change. Raises DuplicateJob.
    """
    unique = job["unique"]
    way = unique["on_conflict"]
    found = find_duplicate(owner, namespace, unique)
    if found is None or way == OnConflict.RETURN:
        return found
    if way == OnConflict.REFUSE:
        raise DuplicateJob(f"A job with the unique key {unique['key']!r} is already there.", job=str(found))
    wanted = {"payload": job.get("payload"), "priority": job.get("priority", 0)}
    if way == OnConflict.EXTEND:
        wanted |= {name: job.get(name) for name in ("available_at", "good_until")}
    try:
        # Without an actor, so that no event is recorded: such a key may be submitted many times a second.
        changes.change_job(found, "", owner.pk, changes=wanted, is_limited=is_limited)
    except (AlreadyStarted, JobUnknown):
        return None
    return found


def find_duplicate(owner: ApiToken, namespace: str, unique: dict[str, Any]) -> UUID | None:
    """Return the latest job of the owner that has this unique key and counts. A job that runs cannot be changed."""
    lasts = unique["while"]
    only_waiting = lasts == UniqueWhile.WAITING or unique["on_conflict"] in (OnConflict.REPLACE, OnConflict.EXTEND)
    named = {"owner": owner.pk, "namespace": namespace, "key": unique["key"], "only_waiting": only_waiting}
    if isinstance(lasts, int | float):
        row = sql.find_recent_duplicate.fetch_row(**named, seconds=lasts)
    else:
        row = sql.find_open_duplicate.fetch_row(**named)
    return row and row.id
