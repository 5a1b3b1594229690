"""Jobs that ended because their workers did, again and again: kept for a look before they are forgotten."""

from uuid import UUID

from controlplane.core.model_fields import ClockTimestamp
from jobs.errors import NotQuarantined
from jobs.models import WorkerJob


def dismiss_job(job: UUID) -> None:
    """Somebody has looked: it leaves the quarantine. Raises NotQuarantined."""
    if not WorkerJob.objects.quarantined().filter(pk=job).update(dismissed_at=ClockTimestamp()):
        raise NotQuarantined
