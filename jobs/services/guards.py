"""Guards: decide which actions are allowed on a job, an execution or a trigger in its current state.

Services call guards before they act, and pages before they offer an action. A guard raises the Problem that explains
why the action does not apply.
"""

from typing import Any, Protocol

from jobs import states
from jobs.choices import Overlap
from jobs.code_errors import CodeNotRunning
from jobs.errors import (
    AlreadyResubmitted,
    CancelRequested,
    CeleryTask,
    JobAlreadyWaiting,
    JobBlocked,
    JobEnded,
    JobNotWaiting,
    NotQuarantined,
    NotResubmitted,
)
from jobs.execution_errors import ExecutionEnded, ExecutionRunning, ExecutionSealed, StepHasChild
from jobs.models import Trigger
from jobs.states import ExecutionState, JobKind, JobState
from jobs.trigger_errors import EvaluationInFlight, TriggerNotPaused, TriggerPaused


class GuardedJob(Protocol):
    """A job with the annotations of `jobs_with_action_guards()`, or a row of `lock_job`."""

    @property
    def state(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def is_cancelling(self) -> bool: ...

    @property
    def is_execution(self) -> bool: ...

    @property
    def is_waiting(self) -> bool: ...

    @property
    def is_quarantined(self) -> bool: ...

    @property
    def is_resubmitted(self) -> bool: ...

    @property
    def is_step(self) -> bool: ...


class HasState(Protocol):
    """Execution with the attributes that a guard reads."""

    @property
    def state(self) -> str: ...


def ensure_may_cancel_job(job: GuardedJob) -> None:
    ensure_has_not_ended(job)
    if job.is_cancelling:
        raise CancelRequested(
            "Its cancellation was already requested; its worker must still confirm it.", state=job.state
        )


def ensure_may_resubmit_job(job: GuardedJob, *, is_forced: bool = False) -> None:
    if job.kind == JobKind.CELERY:
        if not job.is_quarantined:
            raise CeleryTask(state=job.state)
        return
    if job.state in (JobState.PENDING, JobState.BLOCKED):
        raise JobAlreadyWaiting(state=job.state)
    if job.is_waiting:
        raise JobAlreadyWaiting("The step waits without a worker: there is no code to run again.", state=job.state)
    if job.state in states.TERMINAL and job.is_step:
        raise ExecutionEnded(
            f"This step is {job.state} and its execution has continued: run the execution again.", state=job.state
        )
    if job.state == JobState.COMPLETED or job.kind == JobKind.TRIGGER:
        ensure_has_not_ended(job)
    if job.is_resubmitted and not is_forced:
        raise AlreadyResubmitted(state=job.state)
    if job.state in states.LIVE:
        ensure_is_no_execution(job)
        if job.is_cancelling:
            raise CancelRequested(state=job.state)


def ensure_may_resubmit_job_again(job: GuardedJob) -> None:
    ensure_may_resubmit_job(job, is_forced=True)
    if not job.is_resubmitted:
        raise NotResubmitted(state=job.state)


def ensure_may_fail_job(job: GuardedJob) -> None:
    ensure_has_not_ended(job)
    if job.state == JobState.BLOCKED:
        raise JobBlocked(state=job.state)
    if job.kind == JobKind.CELERY:
        raise CeleryTask(state=job.state)
    ensure_is_no_execution(job)


def ensure_may_dismiss_job(job: GuardedJob) -> None:
    if not job.is_quarantined:
        raise NotQuarantined(state=job.state)


def ensure_may_dump_stack(job: GuardedJob) -> None:
    if job.state != JobState.RUNNING:
        raise CodeNotRunning(f"The job is {job.state}, so no code of it runs.", state=job.state)
    if job.kind == JobKind.CELERY:
        raise CeleryTask("The job is a Celery task: its stack cannot be read here.", state=job.state)
    if job.is_execution or job.is_waiting:
        raise CodeNotRunning("The job needs no worker, so no code of it runs.", state=job.state)


def ensure_may_run_now(job: Any) -> None:
    """Raise JobNotWaiting unless `jobs_with_action_guards` found that the job waits for a later time."""
    if not job.is_scheduled:
        raise JobNotWaiting("The job does not wait for a later time.", state=job.state)


def ensure_has_not_ended(job: GuardedJob) -> None:
    if job.state in states.TERMINAL:
        raise JobEnded(f"This job is {job.state} and cannot be changed any more.", state=job.state)


def ensure_is_no_execution(job: GuardedJob) -> None:
    if job.is_execution:
        raise StepHasChild(state=job.state)


def ensure_may_cancel_execution(execution: HasState) -> None:
    if execution.state in states.EXECUTION_TERMINAL:
        raise ExecutionEnded(
            f"This execution is {execution.state} and cannot be changed any more.", state=execution.state
        )
    if execution.state == ExecutionState.CANCELLING:
        raise CancelRequested(
            "This execution is already being cancelled: it ends when its last step has ended.", state=execution.state
        )


class Openable(HasState, Protocol):
    """Execution that may be open."""

    @property
    def sealed(self) -> bool: ...


def ensure_may_add_steps(execution: Openable) -> None:
    if execution.sealed:
        raise ExecutionSealed(state=execution.state)
    ensure_may_seal_execution(execution)


def ensure_may_seal_execution(execution: Openable) -> None:
    if execution.state != ExecutionState.RUNNING:
        raise ExecutionEnded(f"This execution is {execution.state}. Only a RUNNING one is open.", state=execution.state)
    if execution.sealed:
        raise ExecutionSealed("This execution is already sealed.", state=execution.state)


def ensure_may_rerun_execution(execution: HasState) -> None:
    if execution.state not in states.EXECUTION_TERMINAL:
        raise ExecutionRunning(f"This execution is {execution.state}. Only one that has ended can be run again.")


def ensure_may_restart_execution(execution: HasState) -> None:
    ensure_may_rerun_execution(execution)
    if execution.state == ExecutionState.COMPLETED:
        raise ExecutionEnded("This execution is COMPLETED: no step failed. It can be run again from the beginning.")


def ensure_may_evaluate_trigger(trigger: Any) -> None:
    if trigger.in_flight and trigger.overlap == Overlap.ALLOW:
        raise EvaluationInFlight


def ensure_may_pause_trigger(trigger: Trigger) -> None:
    if not trigger.enabled:
        raise TriggerPaused


def ensure_may_resume_trigger(trigger: Trigger) -> None:
    if trigger.enabled:
        raise TriggerNotPaused
