"""Models of jobs, their attempts and superseded reports, executions and triggers.

The state of a job changes under the lock of its own row; attempts are its history. The state of an execution, and of
its steps without an attempt (BLOCKED, or running a child), changes under the lock of the root execution of its tree
(jobs/services/propagation.py).
"""

from jobs.models.alerts import AlertChannel, AlertMessage, AlertMute, Incident
from jobs.models.attempts import Attempt, LateReport, LogLine
from jobs.models.batches import Batch, BatchItem
from jobs.models.executions import Execution, ExecutionEvent, StepDependency
from jobs.models.history import HistoryEntry, HistoryWatermark
from jobs.models.holds import Hold
from jobs.models.jobs import WorkerJob
from jobs.models.limits import FairTurn, LimitBucket, LimitRecheck, LimitRule, LimitSlot, named_limits
from jobs.models.signals import Signal
from jobs.models.stored import StoredBytes
from jobs.models.taken import TakenAttempt
from jobs.models.tasks import TaskTally
from jobs.models.triggers import Backfill, Trigger, TriggerSlot

__all__ = [
    "AlertChannel",
    "AlertMessage",
    "AlertMute",
    "Attempt",
    "Backfill",
    "Batch",
    "BatchItem",
    "Execution",
    "ExecutionEvent",
    "FairTurn",
    "HistoryEntry",
    "HistoryWatermark",
    "Hold",
    "Incident",
    "LateReport",
    "LimitBucket",
    "LimitRecheck",
    "LimitRule",
    "LimitSlot",
    "LogLine",
    "Signal",
    "StepDependency",
    "StoredBytes",
    "TakenAttempt",
    "TaskTally",
    "Trigger",
    "TriggerSlot",
    "WorkerJob",
    "named_limits",
]
