"""Operator actions by name, on one server, job, execution or trigger, or on many as a batch.

They call the same services as all other callers, with the same guards, events and notes.
"""

from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID

from django.db.models import Model, Q

from controlplane.core.transactions import retried_atomic
from jobs.models import Execution, Trigger, WorkerJob
from jobs.services import (
    cancellation,
    changes,
    interventions,
    open_executions,
    quarantine,
    reruns,
    stack_dumps,
    triggers,
)
from liveness.errors import ChangedSinceSeen
from liveness.models import Server
from liveness.services import operations
from liveness.states import Subject


def resubmit_job(
    job: UUID, by: str, note: str, key: str, *, drop_checkpoint: bool = False, force: bool = False
) -> UUID:
    key_of_job = derive_idempotency_key(key, job)
    keep = not drop_checkpoint
    return interventions.resubmit_job(job, by, key=key_of_job, note=note, keep_checkpoint=keep, force=force)[0]


def resubmit_job_again(job: UUID, by: str, note: str, key: str, *, drop_checkpoint: bool = False) -> UUID:
    return resubmit_job(job, by, note, key, drop_checkpoint=drop_checkpoint, force=True)


def rerun_execution(execution: UUID, by: str, note: str, key: str) -> UUID:
    return reruns.rerun_execution(execution, by, key=derive_idempotency_key(key, execution), note=note)[0]


def restart_execution(
    execution: UUID, by: str, note: str, key: str, from_step: str | None = None, inputs: dict[str, Any] | None = None
) -> UUID:
    key_of_execution = derive_idempotency_key(key, execution)
    return reruns.restart_execution(execution, by, key=key_of_execution, note=note, from_step=from_step, inputs=inputs)[
        0
    ]


def evaluate_trigger(trigger: UUID, by: str, note: str, key: str) -> None:
    triggers.evaluate_trigger(trigger, by, derive_idempotency_key(key, trigger), note=note)


def derive_idempotency_key(key: str, id: UUID) -> str | None:
    """Return the idempotency key for one object of a form that acts on several."""
    return f"{key} {id}" if key else None


class SubjectRows(NamedTuple):
    """Rows that operators can act on."""

    model: type[Model]
    lockable: Q
    """Condition for rows that may be locked while the service acts. For other rows the service has its own
    transactions, and a lock would block them. For example, an action on a step locks its execution first."""


SUBJECTS = {
    Subject.SERVER: SubjectRows(Server, Q()),
    Subject.JOB: SubjectRows(WorkerJob, Q(execution=None)),
    Subject.EXECUTION: SubjectRows(Execution, Q(pk__in=[])),
    Subject.TRIGGER: SubjectRows(Trigger, Q()),
}


class Operation(NamedTuple):
    subject: Subject
    service: Callable[..., Any]
    event: str
    """Action of the event that the service records."""


OPERATIONS: dict[str, Operation] = {
    "cordon_server": Operation(Subject.SERVER, operations.cordon_server, "cordon"),
    "uncordon_server": Operation(Subject.SERVER, operations.uncordon_server, "uncordon"),
    "drain_server": Operation(Subject.SERVER, operations.drain_server, "drain"),
    "undrain_server": Operation(Subject.SERVER, operations.undrain_server, "undrain"),
    "disconnect_server": Operation(Subject.SERVER, operations.disconnect_server, "disconnect"),
    "cancel_job": Operation(Subject.JOB, interventions.cancel_job, "cancel_job"),
    "resubmit_job": Operation(Subject.JOB, resubmit_job, "resubmit_job"),
    "resubmit_job_again": Operation(Subject.JOB, resubmit_job_again, "resubmit_job"),
    "fail_job": Operation(Subject.JOB, interventions.fail_job, "fail_job"),
    "change_job": Operation(Subject.JOB, changes.change_job, "change_job"),
    "dump_stack": Operation(Subject.JOB, stack_dumps.request_stack, "dump_stack"),
    "dismiss_job": Operation(Subject.JOB, quarantine.dismiss_job, "dismiss_job"),
    "cancel_execution": Operation(Subject.EXECUTION, cancellation.cancel_execution, "cancel_execution"),
    "seal_execution": Operation(Subject.EXECUTION, open_executions.seal_execution, "seal_execution"),
    "rerun_execution": Operation(Subject.EXECUTION, rerun_execution, "rerun_execution"),
    "restart_execution": Operation(Subject.EXECUTION, restart_execution, "restart_execution"),
    "evaluate_trigger": Operation(Subject.TRIGGER, evaluate_trigger, "evaluate_trigger"),
    "pause_trigger": Operation(Subject.TRIGGER, triggers.pause_trigger, "change_trigger"),
    "resume_trigger": Operation(Subject.TRIGGER, triggers.resume_trigger, "change_trigger"),
    "delete_trigger": Operation(Subject.TRIGGER, triggers.delete_trigger, "delete_trigger"),
}


def perform_operation(
    name: str,
    id: UUID,
    by: str,
    parameters: dict[str, Any],
    seen: str = "",
    then: Callable[[Any, Any], object] = lambda row, result: None,
) -> Any:
    """Perform an operation and return what its service returns.

    `then` is called with the row before the operation and the result, in the same transaction if the row may be locked.
    `seen` is the state that the operator saw, with the attempt of a job that is held (empty: any state). Raises
    ChangedSinceSeen if the row has changed since then, and the Problem of the service.
    """
    operation = OPERATIONS[name]
    model, lockable = SUBJECTS[operation.subject]
    rows = model._default_manager.filter(pk=id)

    def act_on(row: Any) -> Any:
        if row is not None and seen:
            ensure_is_as_seen(row, seen)
        result = operation.service(id, by=by, **parameters)
        then(row, result)
        return result

    @retried_atomic
    def act_on_locked() -> tuple[bool, Any]:
        row = rows.filter(lockable).select_for_update(no_key=True).first()
        return row is not None, act_on(row) if row else None

    is_locked, result = act_on_locked()
    return result if is_locked else act_on(rows.first())


def ensure_is_as_seen(row: Any, seen: str) -> None:
    state, _, attempt = seen.partition(" ")
    if row.state != state:
        raise ChangedSinceSeen(f"It was {state} when you looked and is {row.state} now: look again.")
    if attempt and str(row.attempt_id) != attempt:
        raise ChangedSinceSeen("Another attempt has started since you looked: look again.")
