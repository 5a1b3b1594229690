"""What an operator may do to a job, in words and as a service."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from controlplane.console.actions.servers import OnceForm, OperatorAction
from jobs import states
from jobs.errors import (
    CancelRequested,
    ExecutionEnded,
    ExecutionRunning,
    JobBlocked,
    JobEnded,
    JobWaiting,
    NotQuarantined,
)
from jobs.services import cancellation, executions, interventions, operator_actions, quarantine
from jobs.states import ExecutionState, JobState


def ensure_may_cancel_job(job: Any) -> None:
    if job.state in states.TERMINAL:
        raise build_job_ended(job)
    if job.is_cancelling:
        raise CancelRequested("Its cancellation was asked for already; its worker has yet to confirm it.")


def ensure_may_resubmit_job(job: Any) -> None:
    if job.state == JobState.COMPLETED:
        raise build_job_ended(job)
    if job.state in (JobState.PENDING, JobState.BLOCKED):
        raise JobWaiting(state=job.state)
    if job.state in states.TERMINAL and job.is_step:
        raise ExecutionEnded("It is a step, and its execution has moved on: run the execution again.")
    if job.state in states.LIVE and job.is_cancelling:
        raise CancelRequested(state=job.state)


def ensure_may_fail_job(job: Any) -> None:
    if job.state in states.TERMINAL:
        raise build_job_ended(job)
    if job.state == JobState.BLOCKED:
        raise JobBlocked(state=job.state)


def build_job_ended(job: Any) -> JobEnded:
    return JobEnded(f"This job is {job.state}: nothing changes it any more.", state=job.state)


def ensure_may_dismiss_job(job: Any) -> None:
    if not job.is_quarantined:
        raise NotQuarantined(state=job.state)


def recorded_action(action: str, service: Callable[..., Any], noun: str = "job") -> Callable[..., Any]:
    """The service, with its event: of no server, under the name of the job or execution."""

    def perform_and_record(id: UUID, by: str, note: str, **more: str) -> Any:
        result = service(id, by, note, **more)
        operator_actions.record_operator_action(action, f"{noun} {id}", by, note)
        return result

    return perform_and_record


def resubmit_job(job: UUID, by: str, note: str, key: str) -> UUID:
    new, _ = interventions.resubmit_job(job, by, key=derive_idempotency_key(key, job))
    quarantine.leave_quarantine(job)
    return new


def rerun_execution(execution: UUID, by: str, note: str, key: str) -> UUID:
    return executions.rerun_execution(execution, key=derive_idempotency_key(key, execution))[0]


def derive_idempotency_key(key: str, id: UUID) -> str | None:
    """A form's key, for one of those that it acts on."""
    return f"{key} {id}" if key else None


JOB_ACTIONS = {
    action.name: action
    for action in (
        OperatorAction(
            "cancel", "Cancel", "A waiting job ends now; a running one when its worker confirms, unless it completes "
            "first.", "jobs.cancel_workerjob",
            recorded_action("cancel_job", lambda job, by, note: interventions.cancel_job(job, by)),
            ensure_may_cancel_job,
        ),
        OperatorAction(
            "resubmit", "Resubmit", "One that is held is taken from its worker and waits again; one that has ended is "
            "submitted anew, as another job.", "jobs.resubmit_workerjob",
            recorded_action("resubmit_job", resubmit_job), ensure_may_resubmit_job,
            OnceForm,
        ),
        OperatorAction(
            "fail", "Fail", "It is FAILED with FAILED_BY_OPERATOR, and never tried again.", "jobs.fail_workerjob",
            recorded_action("fail_job", lambda job, by, note: interventions.fail_job(job, by, note)),
            ensure_may_fail_job,
        ),
    )
}  # fmt: skip


def ensure_may_cancel_execution(execution: Any) -> None:
    if execution.state != ExecutionState.RUNNING:
        raise ExecutionEnded(f"It is {execution.state}.", state=execution.state)


def ensure_may_rerun_execution(execution: Any) -> None:
    if execution.state not in states.EXECUTION_TERMINAL:
        raise ExecutionRunning(f"It is {execution.state}; one that has ended can be run again.")


EXECUTION_ACTIONS = {
    action.name: action
    for action in (
        OperatorAction(
            "cancel", "Cancel", "What waits ends now, what runs when its worker confirms; children too. No hook runs.",
            "jobs.cancel_execution",
            recorded_action(
                "cancel_execution", lambda id, by, note: cancellation.cancel_execution(id, by), "execution"),
            ensure_may_cancel_execution,
        ),
        OperatorAction(
            "rerun", "Run again", "A new execution begins, with the same steps and inputs. This one stays as it is.",
            "jobs.rerun_execution",
            recorded_action("rerun_execution", rerun_execution, "execution"), ensure_may_rerun_execution, OnceForm,
        ),
    )
}  # fmt: skip

DISMISS_ACTION = {
    "dismiss": OperatorAction(
        "dismiss", "Dismiss", "It stays FAILED and leaves the quarantine: somebody has looked at it.",
        "jobs.dismiss_workerjob", recorded_action("dismiss_job", lambda job, by, note: quarantine.dismiss_job(job)),
        ensure_may_dismiss_job,
    ),
}  # fmt: skip
QUARANTINE_ACTIONS = {"resubmit": JOB_ACTIONS["resubmit"], **DISMISS_ACTION}
