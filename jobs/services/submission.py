"""Clients hand in work."""

from collections.abc import Iterator
from typing import Any

from controlplane.core.prepared import fetch_prepared_rows
from controlplane.core.transactions import retried_atomic
from jobs.conf import conf
from jobs.errors import KeyTaken, TryAgain
from jobs.models import WorkerJob
from jobs.selectors.submitted import Submitted, UntouchedJob, stays_untouched
from jobs.services import drafts as drafting
from jobs.services import executions, waiting_counts
from jobs.services.hints import announce_work
from jobs.services.refusals import refuse_too_many, refuse_without_runner, refuse_without_worker
from jobs.sql import sql
from jobs.sql.rows.submission import SubmittedJob
from jobs.states import JobKind
from liveness.conf import conf as liveness_conf
from liveness.models import DEFAULT_NAMESPACE, ApiToken


@retried_atomic
def submit_jobs(
    owner: ApiToken | None,
    jobs: list[dict[str, Any]],
    kind: JobKind = JobKind.TASK,
    *,
    namespace: str | None = None,
    is_limited: bool = True,
    largest: int | None = 0,
) -> list[Submitted]:
    """All or none of these jobs, in order. No owner: a trigger's. They are of this namespace, or of the owner's.
    `is_limited`: no more than so many of the owner may wait. Of action and payload is answered what has up to `largest`
    bytes of JSON (None: all).

    The same key again finds the same job. Raises KeyTaken when its content is another, TooManyWaiting when new ones
    would pass the limit of the owner, NoRunner for a new one of a client that no worker of the fleet takes, and what is
    in the way when a new one requires a worker and none is eligible now, however full. One that is an execution begins
    at once.
    """
    namespace = namespace or (owner.namespace if owner else DEFAULT_NAMESPACE)
    drafts = list(build_job_rows(jobs))
    limit = limit_to_count(owner, len(drafts)) if owner and is_limited else None
    # What a trigger starts has nobody to refuse it to.
    runners = [drafting.required_runners(job) for job in jobs] if owner else []
    stored = fetch_prepared_rows(
        sql.submit_jobs,
        owner=owner and owner.pk,
        namespace=namespace,
        kind=kind,
        jobs=drafting.dump_sorted_json(drafts),
        runners=drafting.dump_sorted_json(list(set().union(*runners))),
        unmatched_after=conf().unmatched_after,
        waiting_limit=limit,
        staleness_multiplier=liveness_conf().staleness_multiplier,
        largest=largest,
    )
    rows = {row.place: row for row in stored}
    known = [draft for draft in drafts if draft["place"] not in rows]
    # A statement of its own: it also sees what a concurrent submission of the same key has just committed.
    holders = WorkerJob.objects.filter(owner=owner, key__in=[draft["key"] for draft in known]) if known else []
    by_key = {job.key: job for job in holders}
    for draft in known:
        job = by_key.get(draft["key"])
        if job is None:
            raise TryAgain
        if job.namespace != namespace:
            raise KeyTaken(f"The key {job.key!r} was used before, in the namespace {job.namespace}.", job=str(job.pk))
        if bytes(job.fingerprint).hex() != draft["fingerprint"]:
            raise KeyTaken(f"The key {job.key!r} was used before, for a job with other content.", job=str(job.pk))
    refuse_too_many(stored, len(stored), limit)
    if owner and stored:
        note_stored(owner, stored, is_counted=limit is not None)
    refuse_without_worker(stored)
    refuse_without_runner(stored, [runners[row.place] for row in stored] if owner else [])
    executions.begin_children([row.id for row in stored if row.is_execution])
    if stored:
        announce_work()
    common = {"kind": kind, "namespace": namespace}
    return [
        Submitted(row.id, True, UntouchedJob(row, {**draft, **common}) if stays_untouched(draft) else None)
        if (row := rows.get(draft["place"]))
        else Submitted(by_key[draft["key"]].pk, False, None)
        for draft in drafts
    ]


def limit_to_count(owner: ApiToken, number: int) -> int | None:
    """How many jobs of the owner may wait; None: no limit, or one that so many more surely do not reach."""
    limit = conf().waiting_limit
    return None if limit is None or waiting_counts.is_surely_below(limit, owner.pk, number) else limit


def note_stored(owner: ApiToken, stored: list[SubmittedJob], *, is_counted: bool) -> None:
    """What was stored is kept in mind before the commit: where that fails, too many are, which only counts sooner."""
    if is_counted:
        waiting_counts.note_count(owner.pk, stored[0].waiting + len(stored))
    else:
        waiting_counts.add_to_count(owner.pk, len(stored))


def build_job_rows(jobs: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The rows to store."""
    for place, job in enumerate(jobs):
        yield {"place": place, "key": job.get("key"), **drafting.build_job_content(job)}
