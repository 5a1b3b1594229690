"""The states of worker jobs, attempts and executions and every legal transition between them.

All guards are derived from these tables: the services, the CHECK constraints, the database
triggers and the diagrams in docs/reference.md.
"""

from controlplane.core.described import Described


class JobState(Described):
    """Where a job is. Each line says what it means, and who moves the job on."""

    BLOCKED = "BLOCKED", "A step that waits for the steps it depends on. Their ends move it on."
    PENDING = "PENDING", "It waits for a worker. A worker claims it; the recovery sweep ends it when its time is over."
    CLAIMED = "CLAIMED", "A worker has it, its code has not started. The worker starts or releases it, or is lost."
    RUNNING = "RUNNING", "Its code runs. The worker reports its end; or it is recovered from a lost worker."
    COMPLETED = "COMPLETED", "It has ended with a result. Nobody moves it on; retention deletes it."
    FAILED = "FAILED", "It has ended with an error. Nobody moves it on; resubmitting makes another job."
    CANCELLED = "CANCELLED", "Somebody, or its execution, has ended it. Nobody moves it on."
    SKIPPED = "SKIPPED", "A step that a step it depends on kept from starting. Nobody moves it on."
    EXPIRED = "EXPIRED", "It waited past its good_until. Nobody moves it on."


class AttemptState(Described):
    """Where one try of a job is. Each line says what it means, and who moves the attempt on."""

    CLAIMED = "CLAIMED", "Its worker has it, its code has not started. The worker moves it on, or recovery."
    RUNNING = "RUNNING", "Its code runs. The worker reports its end; recovery ends it when the worker is lost."
    COMPLETED = "COMPLETED", "Its code has ended with a result, which is the job's. It never moves again."
    FAILED = "FAILED", "Its code has ended with an error, or the control plane has given it up. It never moves again."
    CANCELLED = "CANCELLED", "It was stopped because its job was cancelled. It never moves again."
    RESUBMITTED = "RESUBMITTED", "Its code was lost or interrupted, and the job waits again. It never moves again."
    REQUEUED = "REQUEUED", "It was lost before its code started, and the job waits again. It never moves again."
    RELEASED = (
        "RELEASED",
        "Its worker gave it back before its code started, and the job waits again. It never moves again.",
    )


class ExecutionState(Described):
    """Where an execution is. Each line says what it means, and who moves the execution on."""

    RUNNING = "RUNNING", "Its steps run or wait. The end of the last one moves it on; or somebody cancels it."
    CANCELLING = (
        "CANCELLING",
        "It is cancelled and waits for steps that still run. The end of the last one moves it on.",
    )
    COMPLETED = "COMPLETED", "All of its steps have ended well. Nobody moves it on; rerunning makes another execution."
    FAILED = "FAILED", "A step has failed, or its time was over, and its hooks have ended. Nobody moves it on."
    CANCELLED = "CANCELLED", "It was cancelled, and all of its steps have ended. Nobody moves it on."


class BatchState(Described):
    """Where a bulk action is. Each line says what it means, and who moves it on."""

    RUNNING = "RUNNING", "Its items are acted on, one after the other. The last outcome ends it; or somebody stops it."
    COMPLETED = "COMPLETED", "Each of its items has an outcome. Nobody moves it on; retention deletes it."
    STOPPED = "STOPPED", "Somebody has stopped it: what is done stays done, the rest is left alone."


class ItemOutcome(Described):
    """What came of one of those that a bulk action acts on."""

    PENDING = "PENDING", "Nothing was done to it yet."
    DONE = "DONE", "It was acted on."
    REFUSED = "REFUSED", "It did not apply any more; the reason says why."


class OnWorkerLost(Described):
    """What becomes of a running job whose worker is lost."""

    RESUBMIT = "RESUBMIT", "It is run again by another worker."
    FAIL = "FAIL", "It is FAILED with WORKER_CRASHED."


class RetryBackoff(Described):
    """How long a failed job waits before each retry."""

    FIXED = "fixed", "retry_delay_seconds each time."
    EXPONENTIAL = "exponential", "retry_delay_seconds at first, then twice as long each time."


class Unmatched(Described):
    """What becomes of a job that no alive worker may run."""

    FAIL = "fail", "It is failed after UNMATCHED_AFTER."
    WAIT = "wait", "It waits until there is one."


QUARANTINED = ("RESUBMISSIONS_EXHAUSTED", "WORKER_CRASHED")
"""The codes of FAILED jobs whose workers died of them, or so it seems: somebody should look at them."""


class Flag(Described):
    """Why a job stands still until somebody sees to it."""

    HELD_BY_LOST_SERVER = (
        "held_by_lost_server",
        "RUNNING on a server that is lost, whose restart strategy is NEVER: fail it or resubmit it by hand",
    )
    WAITS_FOR_TAGS = "waits_for_tags", "waiting for tags that no worker alive has"
    REFUSED_BY_ALL = "refused_by_all", "waiting though every worker alive that has the tags refused it"
    WAITS_AFTER_LOSS = "waits_after_loss", "waiting for another worker: one that had it is gone"


class JobKind(Described):
    """Who asked for a job."""

    TASK = "TASK", "A client, or an execution of which it is a step."
    TRIGGER = "TRIGGER", "A trigger: its output says whether an execution starts."
    CELERY = "CELERY", "A Celery application, for one of its tasks: its broker gives it out, no worker claims it here."


class TaskState(Described):
    """What a Celery worker says of a task. The first two go on; the last two are said of tasks in its broker's
    quarantine, by any worker of the same token."""

    HELD = "HELD", "Prefetched, or waiting for its time. Its worker moves it on."
    RUNNING = "RUNNING", "Its code runs. Its worker moves it on."
    COMPLETED = "COMPLETED", "It ended without an error."
    FAILED = "FAILED", "It ended with an error."
    RETRIED = "RETRIED", "It failed, and a message for the next try is under way."
    LOST = "LOST", "Its worker, or the child it ran in, was lost, and the message went back to its queue."
    RETURNED = "RETURNED", "The message went back to its queue, and nobody was lost."
    REVOKED = "REVOKED", "It was revoked, or it expired."
    QUARANTINED = "QUARANTINED", "Lost too often: no message goes back."
    SENT = "SENT", "It was sent out of quarantine, to its queue."


class Missed(Described):
    """What becomes of the slots of a trigger that passed while nobody evaluated it."""

    FIRE_ONCE = "fire_once", "The last of them is evaluated."
    SKIP = "skip", "None of them is evaluated."


class SlotOutcome(Described):
    """What came of a slot of a trigger."""

    EVALUATING = "EVALUATING", "The job that decides is waiting or running. Its end moves the slot on."
    FIRED = "FIRED", "It started an execution."
    NOT_FIRED = "NOT_FIRED", "The job said that nothing is to be started."
    FAILED = "FAILED", "The job failed, or its output was no answer."
    MISSED = "MISSED", "It passed while nobody evaluated the trigger, or while another evaluation ran."


class TriggerState(Described):
    """Whether the slots of a trigger's schedule come."""

    ENABLED = "ENABLED", "It is evaluated at each slot of its schedule. An operator pauses it."
    PAUSED = "PAUSED", "No slot comes, none is missed. An operator resumes it, or has it evaluated all the same."


class EventCode(Described):
    """What the control plane itself does in an execution."""

    JOB_RESUBMITTED = "JOB_RESUBMITTED", "The running attempt of a step was lost; the step is run again."
    JOB_REQUEUED = "JOB_REQUEUED", "The attempt of a step was lost before its code started; the step waits again."
    WORKER_CRASHED = "WORKER_CRASHED", "The worker of a step was lost, and the step is FAILED."
    STEP_TIMEOUT = "STEP_TIMEOUT", "A step ran longer than its timeout_seconds."
    EXECUTION_TIMEOUT = "EXECUTION_TIMEOUT", "The execution ran longer than its timeout_seconds and is cancelled."
    NO_MATCHING_WORKER = "NO_MATCHING_WORKER", "No alive worker may run a step, and the step is FAILED."
    RETRY = "RETRY", "A step failed and is tried again."
    STEP_SKIPPED = "STEP_SKIPPED", "A step that a step depends on did not complete."
    HOOK_FAILED = "HOOK_FAILED", "A hook failed; the execution ends as it would have."
    EXECUTION_REPAIRED = (
        "EXECUTION_REPAIRED",
        "What had stood still, though what it waited for had ended, was moved on.",
    )


_ = JobState

JOB_TRANSITIONS: dict[JobState, set[JobState]] = {
    _.BLOCKED: {_.PENDING, _.SKIPPED, _.CANCELLED},
    _.PENDING: {_.CLAIMED, _.RUNNING, _.CANCELLED, _.FAILED, _.EXPIRED},
    _.CLAIMED: {_.RUNNING, _.PENDING, _.FAILED, _.CANCELLED},
    _.RUNNING: {_.COMPLETED, _.FAILED, _.CANCELLED, _.PENDING},
    _.COMPLETED: set(),
    _.FAILED: set(),
    _.CANCELLED: set(),
    _.SKIPPED: set(),
    _.EXPIRED: set(),
}
JOB_INITIAL = {_.PENDING, _.BLOCKED}
"""What a job may begin as. Workers move on the one, ends of steps the other. (A step that a restart of its execution
keeps begins COMPLETED.)"""

TERMINAL = {state for state, onward in JOB_TRANSITIONS.items() if not onward}
"""The states of a job that has ended. Nobody moves it on."""
OPEN = set(JobState) - TERMINAL
"""The states of a job that has not ended. Workers, recovery and the ends of other steps move it on."""

_a = AttemptState

ATTEMPT_TRANSITIONS: dict[AttemptState, set[AttemptState]] = {
    _a.CLAIMED: {_a.RUNNING, _a.REQUEUED, _a.RELEASED, _a.FAILED, _a.CANCELLED},
    _a.RUNNING: {_a.COMPLETED, _a.FAILED, _a.CANCELLED, _a.RESUBMITTED},
    **{ended: set() for ended in _a if ended not in (_a.CLAIMED, _a.RUNNING)},
}
ATTEMPT_INITIAL = {_a.CLAIMED}
"""What an attempt begins as: its worker moves it on, or recovery."""

LIVE = {state for state, onward in ATTEMPT_TRANSITIONS.items() if onward}
"""A worker holds the attempt, and its job: the job is in the state of the same name. The worker moves it on, or
recovery."""
INTERRUPTED = {_a.RESUBMITTED, _a.REQUEUED, _a.RELEASED}
"""The attempt ended and the job did not: it waited for another try. Nobody moves the attempt on."""

_e = ExecutionState

EXECUTION_TRANSITIONS: dict[ExecutionState, set[ExecutionState]] = {
    _e.RUNNING: {_e.CANCELLING, _e.COMPLETED, _e.FAILED},
    _e.CANCELLING: {_e.CANCELLED},
    **{ended: set() for ended in (_e.COMPLETED, _e.FAILED, _e.CANCELLED)},
}
EXECUTION_INITIAL = {_e.RUNNING}
"""What an execution begins as: the ends of its steps move it on."""

EXECUTION_TERMINAL = {state for state, onward in EXECUTION_TRANSITIONS.items() if not onward}
"""The states of an execution that has ended. Nobody moves it on."""


def legal_transitions(table: dict) -> list[tuple[str, str]]:
    """Every legal (from, to) of a table, for the database's guard."""
    return [(from_.value, to.value) for from_, onward in table.items() for to in sorted(onward)]
