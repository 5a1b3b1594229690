"""What may be done to a job, an execution or a trigger as it is now: told here alone. Services ask before they act,
the pages before they offer.

Each raises the Problem that says why it does not apply. A job is asked with what `jobs_with_action_guards()` annotates,
or as `lock_job` finds it.
"""

from typing import Any

from jobs import states
from jobs.errors import (
    AlreadyResubmitted,
    CancelRequested,
    CeleryTask,
    EvaluationInFlight,
    ExecutionEnded,
    ExecutionRunning,
    JobBlocked,
    JobEnded,
    JobWaiting,
    NotQuarantined,
    NotResubmitted,
    StepHasChild,
    TriggerNotPaused,
    TriggerPaused,
)
from jobs.states import ExecutionState, JobKind, JobState


def ensure_may_cancel_job(job: Any) -> None:
    ensure_has_not_ended(job)
    if job.is_cancelling:
        raise CancelRequested(
            "Its cancellation was asked for already; its worker has yet to confirm it.", state=job.state
        )


def ensure_may_resubmit_job(job: Any, *, is_forced: bool = False) -> None:
    if job.kind == JobKind.CELERY:
        if not job.is_quarantined:
            raise CeleryTask(state=job.state)
        return
    if job.state in (JobState.PENDING, JobState.BLOCKED):
        raise JobWaiting(state=job.state)
    if job.state in states.TERMINAL and job.is_step:
        raise ExecutionEnded(
            f"This step is {job.state} and its execution has moved on: run the execution again.", state=job.state
        )
    if job.state == JobState.COMPLETED or job.kind == JobKind.TRIGGER:
        ensure_has_not_ended(job)
    if job.is_resubmitted and not is_forced:
        raise AlreadyResubmitted(state=job.state)
    if job.state in states.LIVE:
        ensure_is_no_execution(job)
        if job.is_cancelling:
            raise CancelRequested(state=job.state)


def ensure_may_resubmit_job_again(job: Any) -> None:
    ensure_may_resubmit_job(job, is_forced=True)
    if not job.is_resubmitted:
        raise NotResubmitted(state=job.state)


def ensure_may_fail_job(job: Any) -> None:
    ensure_has_not_ended(job)
    if job.state == JobState.BLOCKED:
        raise JobBlocked(state=job.state)
    if job.kind == JobKind.CELERY:
        raise CeleryTask(state=job.state)
    ensure_is_no_execution(job)


def ensure_may_dismiss_job(job: Any) -> None:
    if not job.is_quarantined:
        raise NotQuarantined(state=job.state)


def ensure_has_not_ended(job: Any) -> None:
    if job.state in states.TERMINAL:
        raise JobEnded(f"This job is {job.state}: nothing changes it any more.", state=job.state)


def ensure_is_no_execution(job: Any) -> None:
    if job.is_execution:
        raise StepHasChild(state=job.state)


def ensure_may_cancel_execution(execution: Any) -> None:
    if execution.state in states.EXECUTION_TERMINAL:
        raise ExecutionEnded(
            f"This execution is {execution.state}: nothing changes it any more.", state=execution.state
        )
    if execution.state == ExecutionState.CANCELLING:
        raise CancelRequested(
            "This execution is being cancelled already: it ends when its last step has.", state=execution.state
        )


def ensure_may_rerun_execution(execution: Any) -> None:
    if execution.state not in states.EXECUTION_TERMINAL:
        raise ExecutionRunning(f"This execution is {execution.state}; one that has ended can be run again.")


def ensure_may_restart_execution(execution: Any) -> None:
    ensure_may_rerun_execution(execution)
    if execution.state == ExecutionState.COMPLETED:
        raise ExecutionEnded("This execution is COMPLETED: it failed nowhere. It can be run again from its beginning.")


def ensure_may_evaluate_trigger(trigger: Any) -> None:
    if trigger.in_flight:
        raise EvaluationInFlight


def ensure_may_pause_trigger(trigger: Any) -> None:
    if not trigger.enabled:
        raise TriggerPaused


def ensure_may_resume_trigger(trigger: Any) -> None:
    if trigger.enabled:
        raise TriggerNotPaused
