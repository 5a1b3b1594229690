"""Quarantine: jobs that failed because their workers crashed repeatedly.

They stay there until a person reviews them.
"""

from uuid import UUID

from controlplane.core.model_fields import ClockTimestamp
from controlplane.core.transactions import retried_atomic
from jobs.errors import NotQuarantined
from jobs.models import WorkerJob
from liveness.services.action_events import ActionSubject, record_action
from liveness.states import Subject as SubjectType


@retried_atomic
def dismiss_job(job: UUID, by: str, note: str) -> None:
    """Take a job out of the quarantine after a person has reviewed it. Raise NotQuarantined."""
    if not WorkerJob.objects.quarantined().filter(pk=job).update(dismissed_at=ClockTimestamp()):
        raise NotQuarantined
    record_action("dismiss_job", by, note, ActionSubject(SubjectType.JOB, job))
