"""Clients hand in work."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from controlplane.core.database import connection
from controlplane.core.prepared import fetch_prepared_rows
from controlplane.core.transactions import retried_atomic
from jobs.conf import conf
from jobs.errors import KeyTaken, TryAgain
from jobs.models import WorkerJob
from jobs.selectors.submitted import Submitted, UntouchedJob, stays_untouched
from jobs.services import drafts as drafting
from jobs.services import executions, waiting_counts
from jobs.services.drafts import is_execution
from jobs.services.hints import announce_work
from jobs.services.refusals import refuse_too_many, refuse_without_runner, refuse_without_worker
from jobs.sql import sql
from jobs.sql.rows.submission import SubmittedJob
from jobs.states import JobKind
from liveness.conf import conf as liveness_conf
from liveness.models import DEFAULT_NAMESPACE, ApiToken


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
    wanted = Wanted(
        owner=owner,
        namespace=namespace or (owner.namespace if owner else DEFAULT_NAMESPACE),
        kind=kind,
        drafts=list(build_job_rows(jobs)),
        # What a trigger starts has nobody to refuse it to.
        runners=[drafting.required_runners(job) if owner else set() for job in jobs],
        limit=limit_to_count(owner, len(jobs)) if owner and is_limited else None,
        largest=largest,
    )
    # Nearly always nothing is in the way of a job, and it is stored without a transaction around the statement.
    is_alone = len(jobs) == 1 and not is_execution(jobs[0]) and not connection.in_atomic_block
    by_key: dict[str, WorkerJob] = {}
    if not is_alone or not (stored := wanted.store(only_if_clear=True)):
        stored, by_key = store_or_refuse(wanted)
    if stored:
        note_stored(wanted, stored)
        announce_work()
    rows = {row.place: row for row in stored}
    return [
        Submitted(row.id, True, UntouchedJob(row, kind, wanted.namespace, draft) if stays_untouched(draft) else None)
        if (row := rows.get(draft["place"]))
        else Submitted(by_key[draft["key"]].pk, False, None)
        for draft in wanted.drafts
    ]


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """What is to be stored, and within which limits."""

    owner: ApiToken | None
    namespace: str
    kind: JobKind
    drafts: list[dict[str, Any]]
    runners: list[set[tuple[str, ...]]]
    limit: int | None
    largest: int | None

    def store(self, *, only_if_clear: bool) -> list[SubmittedJob]:
        return fetch_prepared_rows(
            sql.submit_jobs,
            owner=self.owner and self.owner.pk,
            namespace=self.namespace,
            kind=self.kind,
            jobs=drafting.dump_sorted_json(self.drafts),
            runners=drafting.dump_sorted_json(list(set().union(*self.runners))),
            unmatched_after=conf().unmatched_after,
            waiting_limit=self.limit,
            staleness_multiplier=liveness_conf().staleness_multiplier,
            largest=self.largest,
            only_if_clear=only_if_clear,
        )


@retried_atomic
def store_or_refuse(wanted: Wanted) -> tuple[list[SubmittedJob], dict[str, WorkerJob]]:
    """The new jobs, and by their keys those that are known."""
    stored = wanted.store(only_if_clear=False)
    places = {row.place for row in stored}
    by_key = find_known(wanted, [draft for draft in wanted.drafts if draft["place"] not in places])
    refuse_too_many(stored, len(stored), wanted.limit)
    refuse_without_worker(stored)
    refuse_without_runner(stored, [wanted.runners[row.place] for row in stored])
    executions.begin_children([row.id for row in stored if row.is_execution])
    return stored, by_key


def find_known(wanted: Wanted, drafts: list[dict[str, Any]]) -> dict[str, WorkerJob]:
    """The jobs that have these keys, in a statement of its own: it also sees what a concurrent submission of the same
    key has just committed. Raises KeyTaken, and TryAgain where one of them has gone."""
    if not drafts:
        return {}
    holders = WorkerJob.objects.filter(owner=wanted.owner, key__in=[draft["key"] for draft in drafts])
    by_key = {str(job.key): job for job in holders}
    for draft in drafts:
        job = by_key.get(draft["key"])
        if job is None:
            raise TryAgain
        if job.namespace != wanted.namespace:
            raise KeyTaken(f"The key {job.key!r} was used before, in the namespace {job.namespace}.", job=str(job.pk))
        if bytes(job.fingerprint).hex() != draft["fingerprint"]:
            raise KeyTaken(f"The key {job.key!r} was used before, for a job with other content.", job=str(job.pk))
    return by_key


def limit_to_count(owner: ApiToken, number: int) -> int | None:
    """How many jobs of the owner may wait; None: no limit, or one that so many more surely do not reach."""
    limit = conf().waiting_limit
    return None if limit is None or waiting_counts.is_surely_below(limit, owner.pk, number) else limit


def note_stored(wanted: Wanted, stored: list[SubmittedJob]) -> None:
    """What was stored is kept in mind, even where a transaction around it fails yet: too many are, which only counts
    sooner."""
    if wanted.owner is None:
        return
    if wanted.limit is not None:
        waiting_counts.note_count(wanted.owner.pk, stored[0].waiting + len(stored))
    else:
        waiting_counts.add_to_count(wanted.owner.pk, len(stored))


def build_job_rows(jobs: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The rows to store."""
    for place, job in enumerate(jobs):
        yield {"place": place, "key": job.get("key"), **drafting.build_job_content(job)}
