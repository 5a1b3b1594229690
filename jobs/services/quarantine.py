"""Quarantine: jobs that failed because their workers crashed again and again. They stay there until a person looks."""

from uuid import UUID

from controlplane.core.model_fields import ClockTimestamp
from controlplane.core.transactions import retried_atomic
from jobs.errors import NotQuarantined
from jobs.models import WorkerJob
from liveness.services.action_events import ActionSubject, record_action
from liveness.states import Subject as SubjectType


@retried_atomic
def dismiss_job(job: UUID, by: str, note: str) -> None:
    """Take a job out of the quarantine after a person has looked at it. Raises NotQuarantined."""
    if not WorkerJob.objects.quarantined().filter(pk=job).update(dismissed_at=ClockTimestamp()):
        raise NotQuarantined
    record_action("dismiss_job", by, note, ActionSubject(SubjectType.JOB, job))
