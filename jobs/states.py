"""The states of worker jobs and attempts and every legal transition between them.

All guards are derived from these tables: the services, the CHECK constraints, the database
triggers and the diagrams in the README.
"""

from enum import StrEnum


class JobState(StrEnum):
    PENDING = "PENDING"
    CLAIMED = "CLAIMED"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
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


class JobKind(StrEnum):
    TASK = "TASK"
    TRIGGER = "TRIGGER"


_ = JobState

JOB_TRANSITIONS: dict[JobState, set[JobState]] = {
    _.PENDING: {_.CLAIMED, _.CANCELLED, _.FAILED, _.EXPIRED},
    _.CLAIMED: {_.RUNNING, _.PENDING, _.FAILED, _.CANCELLED},
    _.RUNNING: {_.COMPLETED, _.FAILED, _.CANCELLED, _.PENDING},
    _.COMPLETED: set(),
    _.FAILED: set(),
    _.CANCELLED: set(),
    _.EXPIRED: set(),
}
JOB_INITIAL = {_.PENDING}

TERMINAL = {state for state, onward in JOB_TRANSITIONS.items() if not onward}

_a = AttemptState

ATTEMPT_TRANSITIONS: dict[AttemptState, set[AttemptState]] = {
    _a.CLAIMED: {_a.RUNNING, _a.REQUEUED, _a.RELEASED, _a.FAILED, _a.CANCELLED},
    _a.RUNNING: {_a.COMPLETED, _a.FAILED, _a.CANCELLED, _a.RESUBMITTED},
    **{ended: set() for ended in _a if ended not in (_a.CLAIMED, _a.RUNNING)},
}
ATTEMPT_INITIAL = {_a.CLAIMED}

LIVE = {state for state, onward in ATTEMPT_TRANSITIONS.items() if onward}


def pairs(table: dict) -> list[tuple[str, str]]:
    """Every legal (from, to) of a table, for the database's guard."""
    return [(from_.value, to.value) for from_, onward in table.items() for to in sorted(onward)]
