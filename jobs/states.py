"""States of worker jobs, attempts and executions, and every legal transition between them.

All guards are derived from these tables: the services, the CHECK constraints, the database triggers, and the diagrams
in the documentation.
"""

from controlplane.core.described import Described


class JobState(Described):
    """State of a job. Each line explains the state and names what changes it."""

    BLOCKED = "BLOCKED", "A step that waits for the steps it depends on. It becomes PENDING or SKIPPED when they end."
    PENDING = "PENDING", "It waits for a worker to claim it. After its good_until the recovery sweep ends it."
    CLAIMED = "CLAIMED", "A worker has it but has not started its code. The worker starts it or gives it back."
    RUNNING = "RUNNING", "Its code runs. The worker reports its end. If the worker is lost, the job is recovered."
    COMPLETED = "COMPLETED", "Ended with a result. Final; retention deletes it."
    FAILED = "FAILED", "Ended with an error. Final; resubmitting it creates another job."
    CANCELLED = "CANCELLED", "Cancelled by a person, a client or its execution. Final."
    SKIPPED = (
        "SKIPPED",
        "A step that did not run, because of its condition or a step before it, or that waited too long. Final.",
    )
    EXPIRED = "EXPIRED", "It waited past its good_until. Final."


class AttemptState(Described):
    """State of one attempt of a job. Each line explains the state and names what changes it."""

    CLAIMED = "CLAIMED", "Its worker has it but has not started its code. The worker starts it, or recovery ends it."
    RUNNING = "RUNNING", "Its code runs. The worker reports its end. If the worker is lost, recovery ends it."
    COMPLETED = "COMPLETED", "Its code ended with a result, which is the result of the job. Final."
    FAILED = "FAILED", "Its code ended with an error, or the control plane ended it. Final."
    CANCELLED = "CANCELLED", "It was stopped because its job was cancelled. Final."
    RESUBMITTED = "RESUBMITTED", "Its code was lost or interrupted, and the job waits again. Final."
    REQUEUED = "REQUEUED", "It was lost before its code started, and the job waits again. Final."
    RELEASED = "RELEASED", "Its worker gave it back before its code started, and the job waits again. Final."


class ExecutionState(Described):
    """State of an execution. Each line explains the state and names what changes it."""

    RUNNING = "RUNNING", "Its steps run or wait, or it is open. It ends with its last step, or is cancelled."
    CANCELLING = "CANCELLING", "It is cancelled and waits for steps that still run. It ends with the last of them."
    COMPLETED = "COMPLETED", "All of its steps ended without an error. Final; rerunning it creates another execution."
    FAILED = "FAILED", "A step failed, or the execution timed out, and its hooks have ended. Final."
    CANCELLED = "CANCELLED", "It was cancelled, and all of its steps have ended. Final."


class BatchState(Described):
    """State of a bulk action. Each line explains the state and names what changes it."""

    RUNNING = "RUNNING", "Its items are processed one by one. It ends with the last outcome, or is stopped."
    COMPLETED = "COMPLETED", "Each of its items has an outcome. Final; retention deletes it."
    STOPPED = "STOPPED", "It was stopped. Processed items stay as they are; the rest is not processed."


class BackfillState(Described):
    """State of a backfill. Each line explains the state and names what changes it."""

    RUNNING = "RUNNING", "Its slots start in order. It ends with the last of them, or an operator stops it."
    COMPLETED = "COMPLETED", "All of its slots have ended. Final."
    STOPPED = "STOPPED", "An operator stopped it. Running executions go on; the rest does not start. Final."


class ItemOutcome(Described):
    """Outcome of one item of a bulk action."""

    PENDING = "PENDING", "The item is not processed yet."
    DONE = "DONE", "The action was applied."
    REFUSED = "REFUSED", "The action no longer applied to the item; see the reason."


QUARANTINED = ("RESUBMISSIONS_EXHAUSTED", "WORKER_CRASHED")
"""Error codes of FAILED jobs that probably killed their workers, so a person should look at them."""


class Flag(Described):
    """Reason why a person should look at a job that has not ended."""

    HELD_BY_LOST_SERVER = (
        "held_by_lost_server",
        "RUNNING on a server that is lost, whose restart strategy is NEVER: fail it or resubmit it by hand",
    )
    STALE_RUNNER = (
        "stale_runner",
        "RUNNING without heartbeats of its code, and nothing ends it by itself: fail it or resubmit it by hand",
    )
    STALE_CLAIM = (
        "stale_claim",
        "CLAIMED without heartbeats, while AUTO_REQUEUE_STALE_CLAIMED is off: requeue it by hand",
    )
    WAITS_FOR_TAGS = "waits_for_tags", "waiting for tags that no alive worker has"
    WAITS_FOR_SLOTS = "waits_for_slots", "waiting for more slots than any alive worker with its tags has"
    REFUSED_BY_ALL = "refused_by_all", "waiting although every alive worker with its tags refused it"
    WAITS_AFTER_LOSS = "waits_after_loss", "waiting for another worker, because its worker was lost"
    DEADLINE_MISSED = "deadline_missed", "past its deadline"


class JobKind(Described):
    """Origin of a job."""

    TASK = "TASK", "Submitted by a client, or a step of an execution."
    TRIGGER = "TRIGGER", "Created by a trigger. Its output decides whether an execution starts."
    CELERY = "CELERY", "Record of a Celery task. Its broker delivers it; no worker claims it here."


class TaskState(Described):
    """State of a task that a Celery worker reports. HELD and RUNNING are not final.

    QUARANTINED and SENT are about tasks in the quarantine of the broker. Any worker of the same token may report them.
    """

    HELD = "HELD", "Prefetched, or waiting for its time. Its worker starts it or gives it back."
    RUNNING = "RUNNING", "Its code runs. Its worker reports its end."
    COMPLETED = "COMPLETED", "It ended without an error."
    FAILED = "FAILED", "It ended with an error."
    RETRIED = "RETRIED", "It failed, and a message for the next try was sent."
    LOST = "LOST", "Its worker, or the child process that ran it, was lost. The message went back to its queue."
    RETURNED = "RETURNED", "The message went back to its queue, although no worker was lost."
    REVOKED = "REVOKED", "It was revoked, or it expired."
    QUARANTINED = "QUARANTINED", "Lost too often: its message does not go back to the queue."
    SENT = "SENT", "Its message was sent from quarantine back to its queue."


class SlotOutcome(Described):
    """Outcome of a slot of a trigger."""

    QUEUED = "QUEUED", "The slot waits for an earlier one."
    EVALUATING = "EVALUATING", "The job that evaluates the slot is waiting or running."
    FIRED = "FIRED", "The slot started an execution."
    NOT_FIRED = "NOT_FIRED", "The job decided not to start an execution."
    FAILED = "FAILED", "The job failed, its output was not valid, or the execution could not start."
    SKIPPED = "SKIPPED", "The overlap of the trigger left the slot out."
    MISSED = "MISSED", "The slot passed while no executor ran, or while another evaluation ran."


class TriggerState(Described):
    """State of a trigger."""

    ENABLED = "ENABLED", "It is evaluated at each slot of its schedule. An operator may pause it."
    PAUSED = "PAUSED", "It has no slots and misses none. An operator may resume it, or evaluate it once."


class EventCode(Described):
    """Action of the control plane itself in an execution."""

    JOB_RESUBMITTED = "JOB_RESUBMITTED", "The running attempt of a step was lost. The step runs again."
    JOB_REQUEUED = "JOB_REQUEUED", "The attempt of a step was lost before its code started. The step waits again."
    WORKER_CRASHED = "WORKER_CRASHED", "The worker of a step was lost, and the step is FAILED."
    CODE_MAY_RUN = (
        "CODE_MAY_RUN",
        "A step ended, but its code may still run. Dependent steps and hooks wait until it ends.",
    )
    STEP_TIMEOUT = "STEP_TIMEOUT", "A step ran or waited longer than its timeout_seconds."
    EXECUTION_TIMEOUT = "EXECUTION_TIMEOUT", "The execution ran longer than its timeout_seconds and is cancelled."
    DEADLINE_MISSED = "DEADLINE_MISSED", "The execution or a step has not ended at its deadline and is cancelled."
    NO_MATCHING_WORKER = "NO_MATCHING_WORKER", "No alive worker may run a step, and the step is FAILED."
    RETRY = "RETRY", "A step failed and is tried again."
    STEP_SKIPPED = (
        "STEP_SKIPPED",
        "A step was skipped: its condition is false, or a step before it did not complete.",
    )
    TRIGGER_REFUSED = (
        "TRIGGER_REFUSED",
        "A trigger on the end of this execution did not start, because it had started before in the same chain.",
    )
    HOOK_FAILED = "HOOK_FAILED", "A hook failed. That does not change how the execution ends."
    OUTPUT_NOT_AVAILABLE = (
        "OUTPUT_NOT_AVAILABLE",
        "An output is null: too large, or too slow to read.",
    )
    EXECUTION_REPAIRED = (
        "EXECUTION_REPAIRED",
        "A step or the execution still waited for something that had ended, and was started or ended.",
    )


_ = JobState

JOB_TRANSITIONS: dict[JobState, set[JobState]] = {
    _.BLOCKED: {_.PENDING, _.SKIPPED, _.FAILED, _.CANCELLED},
    _.PENDING: {_.CLAIMED, _.RUNNING, _.CANCELLED, _.FAILED, _.EXPIRED},
    _.CLAIMED: {_.RUNNING, _.PENDING, _.FAILED, _.CANCELLED},
    _.RUNNING: {_.COMPLETED, _.FAILED, _.CANCELLED, _.PENDING, _.SKIPPED},
    _.COMPLETED: set(),
    _.FAILED: set(),
    _.CANCELLED: set(),
    _.SKIPPED: set(),
    _.EXPIRED: set(),
}
JOB_INITIAL = {_.PENDING, _.BLOCKED}
"""First states of a job. A worker claims a PENDING job; the ends of other steps change a BLOCKED one. Exception: a step
that a restart of its execution keeps starts as COMPLETED."""

TERMINAL = {state for state, onward in JOB_TRANSITIONS.items() if not onward}
"""Final states of a job."""
OPEN = set(JobState) - TERMINAL
"""States of a job that has not ended. Workers, recovery and the ends of other steps change them."""

_a = AttemptState

ATTEMPT_TRANSITIONS: dict[AttemptState, set[AttemptState]] = {
    _a.CLAIMED: {_a.RUNNING, _a.REQUEUED, _a.RELEASED, _a.FAILED, _a.CANCELLED},
    _a.RUNNING: {_a.COMPLETED, _a.FAILED, _a.CANCELLED, _a.RESUBMITTED, _a.RELEASED},
    **{ended: set() for ended in _a if ended not in (_a.CLAIMED, _a.RUNNING)},
}
ATTEMPT_INITIAL = {_a.CLAIMED}
"""First state of an attempt. Its worker or recovery changes it."""

LIVE = {state for state, onward in ATTEMPT_TRANSITIONS.items() if onward}
"""States in which a worker holds the attempt. Its job is in the state of the same name. The worker or recovery changes
them."""
INTERRUPTED = {_a.RESUBMITTED, _a.REQUEUED, _a.RELEASED}
"""Final states of an attempt whose job did not end but waited for another attempt."""

_e = ExecutionState

EXECUTION_TRANSITIONS: dict[ExecutionState, set[ExecutionState]] = {
    _e.RUNNING: {_e.CANCELLING, _e.COMPLETED, _e.FAILED},
    _e.CANCELLING: {_e.CANCELLED, _e.FAILED},
    **{ended: set() for ended in (_e.COMPLETED, _e.FAILED, _e.CANCELLED)},
}
EXECUTION_INITIAL = {_e.RUNNING}
"""First state of an execution. The ends of its steps change it."""

EXECUTION_TERMINAL = {state for state, onward in EXECUTION_TRANSITIONS.items() if not onward}
"""Final states of an execution."""


def legal_transitions(table: dict) -> list[tuple[str, str]]:
    """Return every legal (from, to) of a table, for the triggers of the database."""
    return [(from_.value, to.value) for from_, onward in table.items() for to in sorted(onward)]
