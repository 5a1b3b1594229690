"""Jobs that ended because their workers did, again and again: kept for a look before they are forgotten."""

from uuid import UUID

from controlplane.core.model_fields import ClockTimestamp
from jobs.errors import NotQuarantined
from jobs.models import WorkerJob


def dismiss_job(job: UUID) -> None:
    """Somebody has looked: it leaves the quarantine. Raises NotQuarantined."""
    if not leave_quarantine(job):
        raise NotQuarantined


def leave_quarantine(job: UUID) -> bool:
    """Whether it was in quarantine, which it is not any more."""
    return WorkerJob.objects.quarantined().filter(pk=job).update(dismissed_at=ClockTimestamp()) == 1
