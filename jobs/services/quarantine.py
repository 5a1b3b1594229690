"""Jobs that ended because their workers did, again and again: kept for a look before they are forgotten."""

from uuid import UUID

from controlplane.core.model_fields import ClockTimestamp
from controlplane.core.transactions import retried_atomic
from jobs.errors import NotQuarantined
from jobs.models import WorkerJob
from liveness.services.action_events import Subject, record_action
from liveness.states import Subject as SubjectType


@retried_atomic
def dismiss_job(job: UUID, by: str, note: str) -> None:
    """Somebody has looked: it leaves the quarantine. Raises NotQuarantined."""
    if not WorkerJob.objects.quarantined().filter(pk=job).update(dismissed_at=ClockTimestamp()):
        raise NotQuarantined
    record_action("dismiss_job", by, note, Subject(SubjectType.JOB, job))
