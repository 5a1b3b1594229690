"""Requests for the stacks of running attempts. A worker learns of them with its heartbeat, and reports STACK."""

from typing import Any
from uuid import UUID

from controlplane.core.model_fields import ClockTimestamp
from controlplane.core.transactions import retried_atomic
from jobs.errors import JobUnknown
from jobs.models import Attempt, WorkerJob
from jobs.selectors.jobs import jobs_with_action_guards
from jobs.services import guards
from jobs.states import AttemptState
from liveness.services.action_events import ActionSubject, record_action
from liveness.states import Subject


@retried_atomic
def request_stack(job: UUID, by: str, note: str = "") -> None:
    """Ask the worker of a running job for the stacks of its code. The code continues.

    A second request before the report changes nothing. Raises JobUnknown, and the 409 that explains why there is no
    code to look at.
    """
    row: Any = jobs_with_action_guards(WorkerJob.objects.filter(pk=job)).first()
    if row is None:
        raise JobUnknown
    guards.ensure_may_dump_stack(row)
    attempts = Attempt.objects.filter(job=job, state=AttemptState.RUNNING, dump_requested_at=None)
    if attempts.update(dump_requested_at=ClockTimestamp()):
        record_action("dump_stack", by, note, ActionSubject(Subject.JOB, job))
