"""What an operator may do to a job, in words and as a service."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from controlplane.console.actions.servers import Action, OnceForm
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
from jobs.services import cancellation, executions, interventions, noting, quarantine
from jobs.states import ExecutionState, JobState


def may_cancel(job: Any) -> None:
    if job.state in states.TERMINAL:
        raise ended(job)
    if job.is_cancelling:
        raise CancelRequested("Its cancellation was asked for already; its worker has yet to confirm it.")


def may_resubmit(job: Any) -> None:
    if job.state == JobState.COMPLETED:
        raise ended(job)
    if job.state in (JobState.PENDING, JobState.BLOCKED):
        raise JobWaiting(state=job.state)
    if job.state in states.TERMINAL and job.is_step:
        raise ExecutionEnded("It is a step, and its execution has moved on: run the execution again.")
    if job.state in states.LIVE and job.is_cancelling:
        raise CancelRequested(state=job.state)


def may_fail(job: Any) -> None:
    if job.state in states.TERMINAL:
        raise ended(job)
    if job.state == JobState.BLOCKED:
        raise JobBlocked(state=job.state)


def ended(job: Any) -> JobEnded:
    return JobEnded(f"This job is {job.state}: nothing changes it any more.", state=job.state)


def may_dismiss(job: Any) -> None:
    if not job.is_quarantined:
        raise NotQuarantined(state=job.state)


def noted(action: str, act: Callable[..., Any], noun: str = "job") -> Callable[..., Any]:
    """The service, with its event: of no server, under the name of the job or execution."""

    def done(id: UUID, by: str, note: str, **more: str) -> Any:
        found = act(id, by, note, **more)
        noting.note(action, f"{noun} {id}", by, note)
        return found

    return done


def resubmit(job: UUID, by: str, note: str, key: str) -> UUID:
    new, _ = interventions.resubmit(job, by, key=own(key, job))
    quarantine.leave(job)
    return new


def rerun(execution: UUID, by: str, note: str, key: str) -> UUID:
    return executions.rerun(execution, key=own(key, execution))[0]


def own(key: str, id: UUID) -> str | None:
    """A form's key, for one of those that it acts on."""
    return f"{key} {id}" if key else None


JOB_ACTIONS = {
    action.name: action
    for action in (
        Action(
            "cancel", "Cancel", "A waiting job ends now; a running one when its worker confirms, unless it completes "
            "first.", "jobs.cancel_workerjob",
            noted("cancel_job", lambda job, by, note: interventions.cancel(job, by)), may_cancel,
        ),
        Action(
            "resubmit", "Resubmit", "One that is held is taken from its worker and waits again; one that has ended is "
            "submitted anew, as another job.", "jobs.resubmit_workerjob", noted("resubmit_job", resubmit), may_resubmit,
            OnceForm,
        ),
        Action(
            "fail", "Fail", "It is FAILED with FAILED_BY_OPERATOR, and never tried again.", "jobs.fail_workerjob",
            noted("fail_job", lambda job, by, note: interventions.fail(job, by, note)), may_fail,
        ),
    )
}  # fmt: skip


def may_end(execution: Any) -> None:
    if execution.state != ExecutionState.RUNNING:
        raise ExecutionEnded(f"It is {execution.state}.", state=execution.state)


def may_rerun(execution: Any) -> None:
    if execution.state not in states.OVER:
        raise ExecutionRunning(f"It is {execution.state}; one that has ended can be run again.")


EXECUTION_ACTIONS = {
    action.name: action
    for action in (
        Action(
            "cancel", "Cancel", "What waits ends now, what runs when its worker confirms; children too. No hook runs.",
            "jobs.cancel_execution",
            noted("cancel_execution", lambda id, by, note: cancellation.cancel(id, by), "execution"), may_end,
        ),
        Action(
            "rerun", "Run again", "A new execution begins, with the same steps and inputs. This one stays as it is.",
            "jobs.rerun_execution",
            noted("rerun_execution", rerun, "execution"), may_rerun, OnceForm,
        ),
    )
}  # fmt: skip

DISMISS = {
    "dismiss": Action(
        "dismiss", "Dismiss", "It stays FAILED and leaves the quarantine: somebody has looked at it.",
        "jobs.dismiss_workerjob", noted("dismiss_job", lambda job, by, note: quarantine.dismiss(job)),
        may_dismiss,
    ),
}  # fmt: skip
QUARANTINE_ACTIONS = {"resubmit": JOB_ACTIONS["resubmit"], **DISMISS}
