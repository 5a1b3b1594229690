"""Records of a worker's tasks. They show which tasks the worker holds, and are reported to the control plane."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

from controlplane.agent.celery.heart.task_record import TaskRecord, free, plain
from controlplane.agent.celery.messages import FromWorker, MessagesDropped, TaskEnded, TaskHeld, TaskRunning

BATCH = 500  # tasks in one call
BATCH_BYTES = 600_000  # of JSON; a call may have 1 MiB
AGAIN_AT_ONCE = 50  # records in one call that the control plane wants to get again; they come last
SAME = 3  # records of one task in one call
WAITING = 5000  # records kept while the control plane cannot be reached; more tasks are only counted
MOST_ENDED = 50_000  # ends kept in all cases, also before the worker is registered
NOTABLE_AFTER = 1.0  # seconds that a task must be held to get a record of its own
AGAIN_AFTER = 30.0  # seconds after which a task that is still held is reported again, as a sign of life
NAMES = 500  # largest number of task names with sums of their own
OTHERS = "(others)"
MAY_BE = "?"  # recorded state of a task that the control plane may know
ENDS = ("COMPLETED", "FAILED", "RETRIED", "LOST", "RETURNED", "REVOKED", "QUARANTINED")
SUMS = ("completed", "failed", "retried", "lost", "seconds")
COUNTED = {"COMPLETED": "completed", "FAILED": "failed", "RETRIED": "retried", "LOST": "lost", "QUARANTINED": "lost"}


class TaskRecords:
    """Records of all tasks of one worker. Thread safe.

    The broker decides which messages a worker holds. These records may be incomplete.
    """

    def __init__(
        self, level: str = "notable", clock: Callable[[], float] = time.monotonic, unrecorded: str | None = None
    ) -> None:
        """Prepare empty records.

        `level` is the option `record`. `unrecorded` is the name of the queue of jobs. They are not recorded, because
        the control plane knows them.
        """
        self._level, self._clock, self._unrecorded = level, clock, unrecorded
        self._lock = threading.Lock()
        self._held: dict[str, TaskRecord] = {}
        self._ended: list[TaskRecord] = []
        self._sums: dict[str, dict[str, int | float]] = {}
        self._changed: set[str] = set()  # names whose sums were not recorded yet
        self._sent: list[tuple[TaskRecord, str]] = []
        self._sent_names: set[str] = set()
        self._known_ends: list[str] = []  # attempts whose ends the worker need not keep any more
        self.counter = str(uuid.uuid4())
        self.is_complete = True  # False if the worker dropped messages

    def read(self, message: FromWorker) -> None:
        """Record a message of the worker. Messages that are not about a task change nothing."""
        with self._lock:
            match message:
                case TaskHeld(tag):
                    recorded = MAY_BE if message.held_for else None
                    self._held[tag] = TaskRecord(message, self._clock() - message.held_for, recorded=recorded)
                case MessagesDropped():
                    self.is_complete = False
                    self._held.clear()  # otherwise a task whose end was dropped would be reported as running forever
                case TaskRunning(tag, pid) if task := self._held.get(tag):
                    task.state, task.started = "RUNNING", self._clock() if task.started is None else task.started
                    task.pid = pid or task.pid
                case TaskEnded(tag):
                    self._read_end(message, self._take_ended(message))

    def _take_ended(self, end: TaskEnded) -> TaskRecord | None:
        """Remove and return the record of an ended task. On Redis, its next delivery may already have the same tag."""
        task = self._held.get(end.tag)
        if task and end.kept_attempt not in ("", task.held.attempt):
            return None
        return self._held.pop(end.tag, None)

    def _read_end(self, end: TaskEnded, task: TaskRecord | None) -> None:
        if task:
            task.is_kept = bool(end.kept_attempt)
            waits = self._end(task, end.outcome, end.seconds, end.text, end.traceback)
        else:
            waits = any(one.held.attempt == end.kept_attempt for one in self._ended)
        if end.kept_attempt and not waits:
            self._known_ends.append(end.kept_attempt)

    def _end(
        self,
        task: TaskRecord,
        outcome: str,
        seconds: float = 0.0,
        text: str | None = None,
        traceback: str | None = None,
    ) -> bool:
        """Record an end. Return True if it waits for a report."""
        if outcome == "DROPPED":
            outcome = "RETURNED"
        if not task.recorded and (outcome == "RETURNED" or (outcome == "REVOKED" and not task.held.is_known)):
            return False  # the control plane does not know this task
        task.state = outcome
        if task.started is not None:  # a heart that began during the task learned of the start late
            task.started = min(task.started, self._clock() - seconds)
        if outcome == "COMPLETED":
            task.result = text
        elif text:
            code, _, message = text.partition(": ")
            task.error = {"code": free(code, 255) or "?", "message": free(message, 2000)}
            if traceback:
                task.error["traceback"] = free(traceback, 8000)
            if outcome in ("LOST", "RETURNED", "QUARANTINED"):
                task.reason = message or code
        self._count(task.held.name, outcome, seconds)
        if is_notable := self._is_notable(task):
            self._ended.append(task)
            del self._ended[:-MOST_ENDED]
        return is_notable

    def _count(self, name: str, outcome: str, seconds: float) -> None:
        name = plain(name) or "?"
        if name not in self._sums and len(self._sums) >= NAMES - 1:
            name = OTHERS
        sums = self._sums.setdefault(name, dict.fromkeys(SUMS, 0))
        sums["seconds"] += seconds
        if outcome in COUNTED:
            sums[COUNTED[outcome]] += 1
        self._changed.add(name)

    def _is_notable(self, task: TaskRecord) -> bool:
        if self._level == "servers" or (task.held.queue and task.held.queue == self._unrecorded):
            return False
        if task.state in ("FAILED", "RETRIED", "LOST", "QUARANTINED") or task.recorded or task.held.is_known:
            return True  # otherwise the job in the control plane would never end if its task is short the second time
        if self._level == "everything":
            return True
        return self._clock() - task.since >= NOTABLE_AFTER

    def note(self, state: str, id: str, name: str, queue: str, reason: str | None = None) -> None:
        """Record the state of a task that this worker does not hold.

        It is in quarantine, or was sent out of quarantine.
        """
        with self._lock:
            held = TaskHeld("", id, name, queue, attempt=str(uuid.uuid4()))
            self._ended.append(TaskRecord(held, self._clock(), state=state, reason=reason))

    def running(self) -> set[str] | None:
        """Return the tags of tasks whose code may run. Return None if messages were dropped."""
        with self._lock:
            return {tag for tag, task in self._held.items() if task.state == "RUNNING"} if self.is_complete else None

    def held(self) -> list[str]:
        """Return the tags of all held tasks."""
        with self._lock:
            return list(self._held)

    def ids_of(self, attempts: Collection[str]) -> list[str]:
        """Return the Celery ids of these attempts' tasks, if the worker has received them and not finished them."""
        with self._lock:
            return [task.held.id for task in self._held.values() if task.held.attempt in attempts]

    def pids(self) -> set[int]:
        with self._lock:
            return {task.pid for task in self._held.values() if task.pid}

    def counts(self) -> dict[str, int]:
        with self._lock:
            running = sum(task.state == "RUNNING" for task in self._held.values())
            return {"running": running, "prefetched": len(self._held) - running}

    def holds(self) -> bool:
        """Return True if the worker may hold a task."""
        return bool(self._held) or not self.is_complete

    def end(self, tag: str, outcome: str, text: str) -> None:
        """Record that a message was returned after the end of the worker."""
        with self._lock:
            if task := self._held.pop(tag, None):
                self._end(task, outcome, 0.0, text)

    def runs_unprotected(self, tag: str) -> bool:
        """Return True if a task runs whose message the broker has forgotten, because it has acks_late=False."""
        with self._lock:
            task = self._held.get(tag)
            return task is not None and task.state == "RUNNING" and not task.held.acks_late

    def take_known_ends(self) -> list[str]:
        """Return the attempts whose ends the control plane knows, or need not know. Return each once."""
        with self._lock:
            attempts, self._known_ends = self._known_ends, []
            return attempts

    def next_batch(self) -> dict[str, Any] | None:
        """Return the body of the next report. Return None if there is nothing new.

        Call `confirm` if the control plane accepts the report, and `take_back` if it does not answer.
        """
        with self._lock:
            now = self._clock()
            again = [task for task in self._ended if task.is_again]
            due = [task for task in self._ended if not task.is_again]
            due += [task for task in self._held.values() if self._is_due(task, now)] + again[:AGAIN_AT_ONCE]
            tasks: list[dict[str, Any]] = []
            counts: Counter[str] = Counter()
            room = BATCH_BYTES
            self._sent = []
            for task in due:
                record = task.to_json(now)
                counts[task.held.id] += 1
                room -= len(json.dumps(record))
                if len(tasks) == BATCH or (tasks and room < 0):
                    break
                if counts[task.held.id] <= SAME:
                    tasks.append(record)
                    self._sent.append((task, task.state))
                    task.recorded = task.recorded or MAY_BE  # also if no answer arrives
            if self._level == "servers" or not (tasks or self._changed):
                return None
            self._sent_names, self._changed = self._changed, set()
            tally = [{"name": name, **self._sums[name]} for name in sorted(self._sent_names)]
            return {"tasks": tasks, **({"counter": self.counter, "tally": tally} if tally else {})}

    def _is_due(self, task: TaskRecord, now: float) -> bool:
        if task.recorded == task.state:
            return now - task.recorded_at >= AGAIN_AFTER
        return self._is_notable(task)

    def confirm(self, again: Collection[str] = ()) -> None:
        """Record that the control plane accepted the latest batch, except the attempts that it wants to get `again`."""
        with self._lock:
            now = self._clock()
            for task, state in self._sent:
                task.recorded, task.recorded_at = state, now
                task.is_again = task.held.attempt in again
            # A task that this report calls running may have ended during the call.
            sent = {id(task) for task, state in self._sent if state == task.state and task.held.attempt not in again}
            self._known_ends += [task.held.attempt for task in self._ended if id(task) in sent and task.is_kept]
            self._ended = [task for task in self._ended if id(task) not in sent]

    def take_back(self) -> None:
        """Keep the latest batch for the next call, because the control plane did not answer."""
        with self._lock:
            self._changed |= self._sent_names
            del self._ended[:-WAITING]
