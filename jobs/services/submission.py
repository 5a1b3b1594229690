"""Submission of jobs by clients and triggers."""

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, NamedTuple

from controlplane.core.database import connection
from controlplane.core.transactions import retried_atomic
from jobs.conf import conf
from jobs.errors import KeyTaken, TryAgain
from jobs.models import WorkerJob
from jobs.selectors.submitted import Submitted, UntouchedJob, stays_untouched
from jobs.services import drafts as drafting
from jobs.services import executions, holds, limits, quotas, stored_bytes, waiting_counts, waiting_tag_sets
from jobs.services.drafts import is_execution
from jobs.services.hints import announce_new_work
from jobs.services.refusals import (
    refuse_on_hold,
    refuse_over_quota,
    refuse_too_many,
    refuse_too_many_tag_sets,
    refuse_without_runner,
    refuse_without_worker,
)
from jobs.sql import sql
from jobs.sql.rows.submission import SubmittedJob
from jobs.states import JobKind
from liveness.conf import conf as liveness_conf
from liveness.models import DEFAULT_NAMESPACE, ApiToken


@dataclass(slots=True)
class Submitter:
    """Owner and namespace of jobs to store."""

    owner: ApiToken | None
    """None for a job of a trigger."""
    namespace: str
    tag_sets: set[tuple[str, ...]] = field(default_factory=set)
    """Sets of required tags of the jobs, and of the steps of executions."""
    jobs: int = 0


GROUP_LOCK_WAIT = 100
"""Milliseconds that a statement with jobs of several clients waits at most for a lock."""


class SingleJob(NamedTuple):
    """Job that a client submits alone. It is no execution and requires no worker."""

    owner: ApiToken
    job: dict[str, Any]
    traceparent: str | None = None
    """Trace of the call."""

    def traced(self, traceparent: str | None) -> "SingleJob":
        """Return the job with this trace, unless it has a trace already."""
        return self if traceparent is None else self._replace(job={"traceparent": traceparent, **self.job})


def submit_jobs(
    owner: ApiToken | None,
    jobs: list[dict[str, Any]],
    kind: JobKind = JobKind.TASK,
    *,
    namespace: str | None = None,
    is_limited: bool = True,
    largest: int | None = 0,
) -> list[Submitted]:
    """Submit jobs, all or none, and return them in order. A job that is an execution begins at once.

    `owner` is None for a job of a trigger; `namespace` is that of the owner by default. With `is_limited` the limits of
    the owner apply. The result has action and payload with up to `largest` bytes of JSON (None: all).

    A job with a known key returns the existing job. Raises KeyTaken if the key belongs to other content, and
    TooManyWaiting, TooManyTagSets or QuotaExceeded if new jobs exceed a limit. Raises NoRunner if no worker has the
    runner of a client's new job. If a new job requires a worker and none is eligible now, raises the problem that
    explains why; a full worker counts as eligible. Raises OnHold if a hold refuses a client's new job.
    """
    drafts = list(build_job_rows(jobs))
    submitter = Submitter(owner, namespace or (owner.namespace if owner else DEFAULT_NAMESPACE), jobs=len(jobs))
    submitter.tag_sets.update(tuple(draft["required_tags"]) for draft in drafts)
    submitter.tag_sets.update(tags for job in jobs if is_execution(job) for tags in drafting.required_tag_sets(job))
    # No client waits for the result of a trigger, so nothing is refused for its runner.
    runners = [drafting.required_runners(job) if owner else set() for job in jobs]
    wanted = Wanted([submitter], kind, drafts, runners, is_limited=is_limited, largest=largest)
    # Nearly always there is no obstacle, and a single job is stored without a transaction around the statement.
    is_alone = len(jobs) == 1 and not is_execution(jobs[0]) and not connection.in_atomic_block
    by_key: dict[str, WorkerJob] = {}
    if not is_alone or not (stored := wanted.store(only_if_clear=True)):
        stored, by_key = store_or_refuse(wanted)
    rows = note_stored(wanted, stored)
    return [
        wanted.build_submitted(draft, row)
        if (row := rows.get(draft["place"]))
        else Submitted(by_key[draft["key"]].pk, False, None)
        for draft in drafts
    ]


def submit_single_jobs(singles: list[SingleJob]) -> list[Submitted | None]:
    """Submit single jobs of any number of clients in one statement, which is a transaction of its own.

    The limits of each owner apply to its jobs. Return None for a job that was not stored, because its key is known, its
    token is not valid any more, or there is another obstacle. `submit_jobs` then returns the known job, or raises the
    error. Raises OperationalError if another transaction has not committed one of the keys.
    """
    submitters = {single.owner.pk: Submitter(single.owner, single.owner.namespace) for single in singles}
    numbers = {owner: number for number, owner in enumerate(submitters, 1)}
    drafts = list(build_job_rows([single.job for single in singles]))
    for single, draft in zip(singles, drafts, strict=True):
        draft["submitter"] = numbers[single.owner.pk]
        submitter = submitters[single.owner.pk]
        submitter.tag_sets.add(tuple(draft["required_tags"]))
        submitter.jobs += 1
    runners = [drafting.required_runners(single.job) for single in singles]
    wanted = Wanted(list(submitters.values()), JobKind.TASK, drafts, runners, is_limited=True, largest=None)
    rows = note_stored(wanted, wanted.store(only_if_clear=True, lock_wait=GROUP_LOCK_WAIT))
    return [(row := rows.get(draft["place"])) and wanted.build_submitted(draft, row) for draft in drafts]


@dataclass(slots=True)
class Wanted:
    """Jobs to store, and their limits."""

    submitters: list[Submitter]
    kind: JobKind
    drafts: list[dict[str, Any]]
    """Rows to store. `submitter` is the number of a submitter, by default 1."""
    runners: list[set[tuple[str, ...]]]
    """The runners that each job asks for."""
    _: KW_ONLY
    is_limited: bool
    largest: int | None
    limit: int | None = None
    tag_sets_limit: int | None = None
    stored_limit: int | None = None

    def __post_init__(self) -> None:
        """Set the limits that the statement must count for."""
        if not self.is_limited:
            return
        for submitter in self.submitters:
            if (owner := submitter.owner) is None:
                continue
            if self.limit is None:
                self.limit = limit_to_count(owner, submitter.jobs)
            if self.tag_sets_limit is None:
                self.tag_sets_limit = waiting_tag_sets.limit_to_count(owner.pk, submitter.tag_sets)
            self.stored_limit = conf().stored_bytes_limit

    def submitter_of(self, draft: dict[str, Any]) -> Submitter:
        return self.submitters[draft.get("submitter", 1) - 1]

    def store(self, *, only_if_clear: bool, lock_wait: int | None = None) -> list[SubmittedJob]:
        """Run the statement. `lock_wait` is the longest wait for a lock in milliseconds (None: that of the session)."""
        runners = {
            (self.submitter_of(draft).namespace, tags)
            for draft, asked in zip(self.drafts, self.runners, strict=True)
            for tags in asked
        }
        statement = stored_bytes.counting(sql.submit_jobs)
        if lock_wait is not None:
            statement = statement.after(sql.limit_lock_waits)
        return statement.fetch_rows(
            lock_wait=lock_wait,
            owners=[submitter.owner and submitter.owner.pk for submitter in self.submitters],
            namespaces=[submitter.namespace for submitter in self.submitters],
            kind=self.kind,
            jobs=drafting.dump_sorted_json(self.drafts),
            runners=drafting.dump_sorted_json(list(runners)),
            unmatched_after=conf().unmatched_after,
            waiting_limit=self.limit,
            tag_sets_limit=self.tag_sets_limit,
            stored_limit=self.stored_limit,
            staleness_multiplier=liveness_conf().staleness_multiplier,
            largest=self.largest,
            only_if_clear=only_if_clear,
        )

    def build_submitted(self, draft: dict[str, Any], row: SubmittedJob) -> Submitted:
        namespace = self.submitter_of(draft).namespace
        is_untouched = stays_untouched(draft) and not row.is_parked
        untouched = UntouchedJob(row, self.kind, namespace, draft) if is_untouched else None
        return Submitted(row.id, True, untouched)


@retried_atomic
def store_or_refuse(wanted: Wanted) -> tuple[list[SubmittedJob], dict[str, WorkerJob]]:
    """Return the new jobs, and the known jobs by key. Raises the refusals; the transaction is then rolled back."""
    stored = wanted.store(only_if_clear=False)
    places = {row.place for row in stored}
    [submitter] = wanted.submitters
    by_key = find_known(submitter, [draft for draft in wanted.drafts if draft["place"] not in places])
    refuse_on_hold(stored)
    refuse_too_many(stored, len(stored), wanted.limit)
    of_steps = {tags for job in stored if job.is_execution for tags in submitter.tag_sets}
    refuse_too_many_tag_sets(stored, wanted.tag_sets_limit, len(of_steps))
    refuse_over_quota(stored, wanted.stored_limit)
    refuse_without_worker(stored)
    refuse_without_runner(stored, [wanted.runners[row.place] for row in stored])
    if with_steps := [row for row in stored if row.is_execution]:
        begin_without_worker(wanted, with_steps)
    if wanted.is_limited and any(row.has_quota for row in stored):
        quotas.spend_quotas(submitter.namespace, len(stored))
    return stored, by_key


def begin_without_worker(wanted: Wanted, stored: list[SubmittedJob]) -> None:
    """Begin these jobs, which need no worker. Raises OnHold if a hold refuses a step that a client submits."""
    [submitter] = wanted.submitters
    if submitter.owner is not None:
        by_place = {draft["place"]: draft for draft in wanted.drafts}
        steps = [step for row in stored for step in drafting.jobs_within(by_place[row.place])]
        holds.refuse_jobs_on_hold(steps, submitter.namespace)
    executions.begin_without_worker([row.id for row in stored])


def find_known(submitter: Submitter, drafts: list[dict[str, Any]]) -> dict[str, WorkerJob]:
    """Return the jobs that have these keys. Raises KeyTaken, and TryAgain if one of them was deleted.

    This is a separate statement, so that it sees a submission of the same key that was committed just now.
    """
    if not drafts:
        return {}
    holders = WorkerJob.objects.filter(owner=submitter.owner, key__in=[draft["key"] for draft in drafts])
    by_key = {str(job.key): job for job in holders}
    for draft in drafts:
        job = by_key.get(draft["key"])
        if job is None:
            raise TryAgain
        if job.namespace != submitter.namespace:
            raise KeyTaken(f"The key {job.key!r} was used before, in the namespace {job.namespace}.", job=str(job.pk))
        if bytes(job.fingerprint).hex() != draft["fingerprint"]:
            raise KeyTaken(f"The key {job.key!r} was used before by a job with other content.", job=str(job.pk))
    return by_key


def limit_to_count(owner: ApiToken, number: int) -> int | None:
    """Return the limit of waiting jobs of the owner. None: there is no limit, or `number` more are surely below it."""
    limit = conf().waiting_limit
    return None if limit is None or waiting_counts.is_surely_below(limit, owner.pk, number) else limit


def note_stored(wanted: Wanted, stored: list[SubmittedJob]) -> dict[int, SubmittedJob]:
    """Announce the new jobs, and return their rows by place.

    Add them to this process's counts of waiting jobs and tag sets, by which it knows when a limit is near. The counts
    stay if the transaction fails later. A count that is too high only makes this process ask the database.
    """
    rows = {row.place: row for row in stored}
    if stored:
        announce_new_work()
        if any(row.is_parked for row in stored):
            limits.settle_soon()
    new: dict[int, list[dict[str, Any]]] = {}
    for draft in wanted.drafts:
        if draft["place"] in rows:
            new.setdefault(draft.get("submitter", 1), []).append(draft)
    for number, drafts in new.items():
        submitter = wanted.submitters[number - 1]
        if submitter.owner is None:
            continue
        is_whole = len(drafts) == submitter.jobs
        sets = submitter.tag_sets if is_whole else {tuple(draft["required_tags"]) for draft in drafts}
        waiting_tag_sets.note_stored(submitter.owner.pk, sets)
        if wanted.limit is not None:
            waiting_counts.note_count(submitter.owner.pk, rows[drafts[0]["place"]].waiting + len(drafts))
        else:
            waiting_counts.add_to_count(submitter.owner.pk, len(drafts))
    return rows


def build_job_rows(jobs: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the rows to store."""
    for place, job in enumerate(jobs):
        yield {"place": place, "key": job.get("key"), **drafting.build_job_content(job)}
