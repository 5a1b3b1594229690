"""Builds jobs as they were just submitted. Used for the response."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from django.db.models import prefetch_related_objects

from controlplane.core.json_bodies import read_json
from jobs.choices import RetryBackoff, Unmatched
from jobs.conf import conf
from jobs.models import WorkerJob
from jobs.selectors.contents import without_large
from jobs.selectors.jobs import attempts_and_superseded_reports, jobs_with_attempts, jobs_with_flags
from jobs.sql.rows.submission import SubmittedJob
from jobs.states import JobKind, JobState

DEFAULTS: dict[str, Any] = {
    "name": "",
    "payload": None,
    "tags": [],
    "priority": 0,
    "unmatched": Unmatched.FAIL,
    "max_retries": 0,
    "retry_delay_seconds": 0,
    "retry_backoff": RetryBackoff.FIXED,
    "retry_on": None,
    "good_until": None,
    "traceparent": None,
    "isolation": None,
    "limits": None,
    "worker_slots": 1,
    "available_at": None,
    "deadline_seconds": None,
    "on_deadline": None,
    "notify": None,
}
"""Default values of a submitted job, the same as in the rule `job_values` of jobs/sql/rules.sql."""


class NoRows(tuple[Any, ...]):
    """Related rows of a job that certainly has none, without a query."""

    def all(self) -> "NoRows":
        return self


class UntouchedJob:
    """A new job that nothing has changed since it was stored, with the attributes of `jobs_with_attempts()`.

    It is built from the row of the statement that stored it. A model instance would have to be read, and building it
    takes longer than storing the job.
    """

    state = JobState.PENDING
    attempts = late_reports = NoRows()
    flags: tuple[str, ...] = ()
    duplicate = False
    resubmissions = retries = 0
    payload_from = parked_by = None
    resubmission_of_id = resubmitted_as = execution_id = step = child_execution = None
    deadline_at = waiting_for = cancel_requested_at = finished_at = output = error = checkpoint = checkpoint_at = None

    def __init__(self, row: SubmittedJob, kind: JobKind, namespace: str, content: dict[str, Any]) -> None:
        """`content` has the fields that differ from `DEFAULTS`. This object keeps it."""
        self.__dict__ = content
        self.kind, self.namespace = kind, namespace
        self.id, self.left_out = row.id, row.left_out or []
        self.action = read_json(row.action)
        self.payload = None if row.payload is None else read_json(row.payload)
        self.parked_by = None if row.hold is None else {"hold": str(row.hold)}
        self.created_at, self.available_at, self.good_until = row.created_at, row.available_at, row.good_until


for field, default in DEFAULTS.items():
    setattr(UntouchedJob, field, default)


class Submitted(NamedTuple):
    id: UUID
    is_new: bool
    job: UntouchedJob | None
    """None if the job must be read from the database."""
    is_duplicate: bool = False
    """True if a unique key found a job that was already there."""


def stays_untouched(content: Mapping[str, Any]) -> bool:
    """Return True if a job with this content has not begun when it is stored, and cannot be flagged or parked yet."""
    if content["action"]["type"] == "execution" or {"limits", "deadline_seconds"} & content.keys():
        return False
    return content.get("unmatched") != Unmatched.WAIT and conf().unmatched_after is not None


def submitted_jobs(submitted: Sequence[Submitted], *, are_whole: bool) -> list[Any]:
    """Return these jobs as in `jobs_with_attempts()`, without large fields unless `are_whole` is set."""
    to_read = [one.id for one in submitted if one.job is None]
    stored = read_jobs(to_read, are_whole) if to_read else {}
    return [one.job or with_duplicate(stored[one.id], is_duplicate=one.is_duplicate) for one in submitted]


def with_duplicate(job: WorkerJob, *, is_duplicate: bool) -> WorkerJob:
    """Return a copy of a job with `duplicate`, because a list may have a job twice: once new, and once found again."""
    answered = copy.copy(job)
    vars(answered)["duplicate"] = is_duplicate
    return answered


def read_jobs(ids: list[UUID], are_whole: bool) -> dict[UUID, WorkerJob]:
    """Read jobs by id. Jobs that were never claimed have no attempts, so these are not queried."""
    jobs = jobs_with_attempts().prefetch_related(None)
    stored = (jobs if are_whole else without_large(jobs)).in_bulk(ids)
    for job in stored.values():
        if not job.attempt_count:
            vars(job)["_prefetched_objects_cache"] = {"attempts": (), "late_reports": ()}
    if claimed := [job for job in stored.values() if job.attempt_count]:
        prefetch_related_objects(claimed, *attempts_and_superseded_reports())
    jobs_with_flags(stored.values())
    return stored
