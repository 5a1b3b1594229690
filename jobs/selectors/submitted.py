"""Jobs as they are when they were just submitted, for the answer."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from uuid import UUID

from django.db.models import prefetch_related_objects

from controlplane.core.json_bodies import read_stored
from jobs.conf import conf
from jobs.models import WorkerJob
from jobs.selectors.contents import without_large
from jobs.selectors.jobs import attempts_and_late_reports, jobs_with_attempts, jobs_with_flags
from jobs.sql.rows.submission import SubmittedJob
from jobs.states import JobKind, JobState, RetryBackoff, Unmatched

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
    "available_at": None,
}
"""What is so of a job of which nobody says otherwise, as `job_values` in jobs/sql/rules.sql has it."""


class Nothing(tuple[Any, ...]):
    """What would be asked for, where it is known that there is none."""

    def all(self) -> "Nothing":
        return self


class UntouchedJob:
    """A job that nobody has touched since it was stored, with all that `jobs_with_attempts()` has of one. It comes from
    the statement that stored it: a model of it would have to be read, and takes longer to make than to store."""

    state = JobState.PENDING
    attempts = late_reports = Nothing()
    flags: tuple[str, ...] = ()
    resubmissions = retries = 0
    resubmission_of_id = resubmitted_as = execution_id = step = child_execution = None
    cancel_requested_at = finished_at = output = error = checkpoint = checkpoint_at = None

    def __init__(self, row: SubmittedJob, kind: JobKind, namespace: str, content: dict[str, Any]) -> None:
        """`content`: what is not as in `DEFAULTS`; it becomes this job's own."""
        self.__dict__ = content
        self.kind, self.namespace = kind, namespace
        self.id, self.left_out = row.id, row.left_out or []
        self.action = read_stored(row.action)
        self.payload = None if row.payload is None else read_stored(row.payload)
        self.created_at, self.available_at, self.good_until = row.created_at, row.available_at, row.good_until


for field, default in DEFAULTS.items():
    setattr(UntouchedJob, field, default)


class Submitted(NamedTuple):
    id: UUID
    is_new: bool
    job: UntouchedJob | None
    """None: it is to be read."""


def stays_untouched(content: Mapping[str, Any]) -> bool:
    """Nothing has begun of a job of this content when it was stored, and nothing is to be said of its waiting."""
    is_execution = content["action"]["type"] == "execution"
    return not is_execution and content.get("unmatched") != Unmatched.WAIT and conf().unmatched_after is not None


def submitted_jobs(submitted: Iterable[Submitted], *, are_whole: bool) -> list[Any]:
    """These jobs as `jobs_with_attempts()` has them, without what is large of them unless `are_whole`."""
    to_read = [one.id for one in submitted if one.job is None]
    stored = read_jobs(to_read, are_whole) if to_read else {}
    return [one.job or stored[one.id] for one in submitted]


def read_jobs(ids: list[UUID], are_whole: bool) -> dict[UUID, WorkerJob]:
    """Those that were never claimed have no attempts, and are not asked for any."""
    jobs = jobs_with_attempts().prefetch_related(None)
    stored = (jobs if are_whole else without_large(jobs)).in_bulk(ids)
    for job in stored.values():
        if not job.attempt_count:
            vars(job)["_prefetched_objects_cache"] = {"attempts": (), "late_reports": ()}
    if claimed := [job for job in stored.values() if job.attempt_count]:
        prefetch_related_objects(claimed, *attempts_and_late_reports())
    jobs_with_flags(stored.values())
    return stored
