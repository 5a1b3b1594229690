"""The states of worker jobs, attempts and executions and every legal transition between them.

All guards are derived from these tables: the services, the CHECK constraints, the database
triggers and the diagrams in the README.
"""

from enum import StrEnum


class JobState(StrEnum):
    BLOCKED = "BLOCKED"  # it waits for steps that it depends on
    PENDING = "PENDING"
    CLAIMED = "CLAIMED"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    SKIPPED = "SKIPPED"  # a step that it depends on did not complete
    EXPIRED = "EXPIRED"  # it waited past its good_until


class AttemptState(StrEnum):
    CLAIMED = "CLAIMED"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    RESUBMITTED = "RESUBMITTED"  # running code was lost or interrupted
    REQUEUED = "REQUEUED"  # claimed, its code never began
    RELEASED = "RELEASED"  # a claim given back


class ExecutionState(StrEnum):
    RUNNING = "RUNNING"
    CANCELLING = "CANCELLING"  # it ends when the last of its steps has
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class OnWorkerLost(StrEnum):
    RESUBMIT = "RESUBMIT"
    FAIL = "FAIL"


class RetryBackoff(StrEnum):
    FIXED = "fixed"
    EXPONENTIAL = "exponential"


class Unmatched(StrEnum):
    """What becomes of a job that no alive worker may run."""

    FAIL = "fail"
    WAIT = "wait"


QUARANTINED = ("RESUBMISSIONS_EXHAUSTED", "WORKER_CRASHED")
"""The codes of FAILED jobs whose workers died of them, or so it seems: somebody should look at them."""


class Flag(StrEnum):
    """Why a job stands still until somebody sees to it."""

    HELD_BY_LOST_SERVER = "held_by_lost_server"  # it is RUNNING on a server that is lost, under NEVER
    WAITS_FOR_TAGS = "waits_for_tags"  # no alive worker has its tags, and it waits for one
    REFUSED_BY_ALL = "refused_by_all"  # every alive worker that has them gave it back as not allowed
    WAITS_AFTER_LOSS = "waits_after_loss"  # it would have failed, but a worker that had it is gone, and more may come


class JobKind(StrEnum):
    TASK = "TASK"
    TRIGGER = "TRIGGER"


class Missed(StrEnum):
    """What becomes of the slots of a trigger that passed while nobody evaluated it."""

    FIRE_ONCE = "fire_once"
    SKIP = "skip"


class SlotOutcome(StrEnum):
    EVALUATING = "EVALUATING"
    FIRED = "FIRED"
    NOT_FIRED = "NOT_FIRED"
    FAILED = "FAILED"
    MISSED = "MISSED"


class EventCode(StrEnum):
    """What the control plane itself does in an execution."""

    JOB_RESUBMITTED = "JOB_RESUBMITTED"
    JOB_REQUEUED = "JOB_REQUEUED"
    WORKER_CRASHED = "WORKER_CRASHED"
    STEP_TIMEOUT = "STEP_TIMEOUT"
    EXECUTION_TIMEOUT = "EXECUTION_TIMEOUT"
    NO_MATCHING_WORKER = "NO_MATCHING_WORKER"
    RETRY = "RETRY"
    STEP_SKIPPED = "STEP_SKIPPED"
    HOOK_FAILED = "HOOK_FAILED"
    EXECUTION_REPAIRED = "EXECUTION_REPAIRED"


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

TERMINAL = {state for state, onward in JOB_TRANSITIONS.items() if not onward}
OPEN = set(JobState) - TERMINAL

_a = AttemptState

ATTEMPT_TRANSITIONS: dict[AttemptState, set[AttemptState]] = {
    _a.CLAIMED: {_a.RUNNING, _a.REQUEUED, _a.RELEASED, _a.FAILED, _a.CANCELLED},
    _a.RUNNING: {_a.COMPLETED, _a.FAILED, _a.CANCELLED, _a.RESUBMITTED},
    **{ended: set() for ended in _a if ended not in (_a.CLAIMED, _a.RUNNING)},
}
ATTEMPT_INITIAL = {_a.CLAIMED}

LIVE = {state for state, onward in ATTEMPT_TRANSITIONS.items() if onward}
INTERRUPTED = {_a.RESUBMITTED, _a.REQUEUED, _a.RELEASED}  # the job went on without it

_e = ExecutionState

EXECUTION_TRANSITIONS: dict[ExecutionState, set[ExecutionState]] = {
    _e.RUNNING: {_e.CANCELLING, _e.COMPLETED, _e.FAILED},
    _e.CANCELLING: {_e.CANCELLED},
    **{ended: set() for ended in (_e.COMPLETED, _e.FAILED, _e.CANCELLED)},
}
EXECUTION_INITIAL = {_e.RUNNING}

EXECUTION_TERMINAL = {state for state, onward in EXECUTION_TRANSITIONS.items() if not onward}
"""The states of an execution that has ended."""


def legal_transitions(table: dict) -> list[tuple[str, str]]:
    """Every legal (from, to) of a table, for the database's guard."""
    return [(from_.value, to.value) for from_, onward in table.items() for to in sorted(onward)]
