"""Worker jobs, their attempts, and the reports that came too late; executions and triggers.

What becomes of a job is decided on its own row, under its lock; attempts are what happened. What becomes of an
execution, and of its steps without an attempt (BLOCKED, or running a child), is decided under the lock of the root of
its tree (jobs/services/propagation.py).
"""

from jobs.models.alerts import AlertMessage, AlertMute, Incident
from jobs.models.attempts import Attempt, LateReport, LogLine
from jobs.models.batches import Batch, BatchItem
from jobs.models.executions import Execution, ExecutionEvent, StepDependency
from jobs.models.history import HistoryEntry, HistoryWatermark
from jobs.models.jobs import WorkerJob
from jobs.models.taken import TakenAttempt
from jobs.models.tasks import TaskTally
from jobs.models.triggers import Trigger, TriggerSlot

__all__ = [
    "AlertMessage",
    "AlertMute",
    "Attempt",
    "Batch",
    "BatchItem",
    "Execution",
    "ExecutionEvent",
    "HistoryEntry",
    "HistoryWatermark",
    "Incident",
    "LateReport",
    "LogLine",
    "StepDependency",
    "TakenAttempt",
    "TaskTally",
    "Trigger",
    "TriggerSlot",
    "WorkerJob",
]
