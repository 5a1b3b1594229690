"""Jobs that a person submits on a page, with an event that names the person and the note."""

from typing import Any
from uuid import UUID

from controlplane.core.transactions import retried_atomic
from jobs.services import submission
from liveness.models import ApiToken
from liveness.services.action_events import ActionSubject, record_action
from liveness.states import Subject


@retried_atomic
def submit_job(
    owner: ApiToken, job: dict[str, Any], by: str, note: str = "", *, namespace: str, source: UUID | None = None
) -> UUID:
    """Submit a job and record who submitted it. Return its id.

    `source` is the job that it repeats; the event names it. A job with a known key is returned without a second event.
    Raises the problems of `submission.submit_jobs`.
    """
    [submitted] = submission.submit_jobs(owner, [job], namespace=namespace)
    if submitted.is_new:
        changes = None if source is None else {"copy_of": {"old": None, "new": str(source)}}
        record_action("submit_job", by, note, ActionSubject(Subject.JOB, submitted.id), changes=changes)
    return submitted.id
