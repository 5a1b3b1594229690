"""What the heart knows of its worker's tasks, and what of that is worth a record."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from controlplane.agent.clean_text import escaped

BATCH = 500  # tasks in one call
BATCH_BYTES = 600_000  # of JSON, where a call may have 1 MiB
SAME = 3  # words on one task in one call
WAITING = 5000  # records kept while the control plane is away; of those above only the count
NOTABLE_AFTER = 1.0  # seconds that a task is held until it is worth a record by itself
AGAIN_AFTER = 30.0  # seconds after which a task that is still held is recorded again: a sign of its life
NAMES = 500  # that are counted for themselves
OTHERS = "(others)"
ENDS = ("COMPLETED", "FAILED", "RETRIED", "LOST", "RETURNED", "REVOKED", "QUARANTINED")
SUMS = ("completed", "failed", "retried", "lost", "seconds")
COUNTED = {"COMPLETED": "completed", "FAILED": "failed", "RETRIED": "retried", "LOST": "lost", "QUARANTINED": "lost"}


def plain(text: Any, most: int = 255) -> str:
    """On one line, and such that it can be stored."""
    return escaped(str(text).encode("utf-8", "replace").decode())[:most]


def free(text: str, most: int) -> str:
    """Its end, with its line breaks."""
    return text.encode("utf-8", "replace").decode().replace("\0", "")[-most:]


@dataclass
class Task:
    """A delivery of a task; `attempt` is what its worker calls it.

    `is_known`: it was delivered or tried before, so there may be a job of it.
    """

    tag: str
    id: str
    name: str
    queue: str
    eta: str | None = None
    retries: int = 0
    root: str | None = None
    parent: str | None = None
    attempt: str = ""
    is_known: bool = False
    args: str | None = None
    since: float = 0.0
    state: str = "HELD"
    started: float | None = None
    pid: int | None = None
    error: dict[str, Any] | None = None
    result: str | None = None
    reason: str | None = None
    recorded: str | None = None  # the state that was recorded last
    recorded_at: float = 0.0

    def record(self, now: float) -> dict[str, Any]:
        record: dict[str, Any] = {
            "attempt": self.attempt,
            "id": plain(self.id) or "?",
            "name": plain(self.name) or "?",
            "state": self.state,
            "queue": plain(self.queue),
            "retries": max(0, self.retries),
            "held_seconds": round(max(0.0, now - self.since), 3),
        }
        optional = {
            "eta": self.eta and plain(self.eta, 64),
            "root": self.root and plain(self.root),
            "parent": self.parent and plain(self.parent),
            "running_seconds": None if self.started is None else round(max(0.0, now - self.started), 3),
            "args": self.args and plain(self.args, 1000),
            "result": self.result and plain(self.result, 2000),
            "error": self.error,
            "reason": self.reason and plain(self.reason, 1000),
        }
        return record | {name: value for name, value in optional.items() if value is not None}


class Ledger:
    """Thread safe. The hash in the broker is the truth, this is commentary."""

    def __init__(
        self, level: str = "notable", clock: Callable[[], float] = time.monotonic, unrecorded: str | None = None
    ) -> None:
        """`unrecorded`: a queue whose tasks are jobs already."""
        self._level, self._clock, self._unrecorded = level, clock, unrecorded
        self._lock = threading.Lock()
        self._held: dict[str, Task] = {}
        self._ended: list[Task] = []
        self._sums: dict[str, dict[str, int | float]] = {}
        self._changed: set[str] = set()  # names whose sums were not recorded yet
        self._sent: list[tuple[Task, str]] = []
        self._sent_names: set[str] = set()
        self.counter = str(uuid.uuid4())
        self.is_complete = True  # False: the worker dropped lines, for the pipe was full

    def read(self, line: list[Any]) -> None:
        """One line of the worker's."""
        kind, *rest = line
        with self._lock:
            if kind == "+":
                self._held[rest[0]] = Task(*rest)
                self._held[rest[0]].since = self._clock()
            elif kind == "!":
                self.is_complete = False
            elif task := self._held.get(rest[0]):
                if kind == ">":
                    task.state, task.started = "RUNNING", self._clock() if task.started is None else task.started
                    task.pid = rest[1] or task.pid
                elif kind == "-":
                    del self._held[rest[0]]
                    self._end(task, *rest[1:])

    def _end(
        self, task: Task, outcome: str, seconds: float = 0.0, text: str | None = None, traceback: str | None = None
    ) -> None:
        if outcome == "DROPPED":
            outcome = "RETURNED"
        if not task.recorded and (outcome == "RETURNED" or (outcome == "REVOKED" and not task.is_known)):
            return  # before anything was told of it
        task.state = outcome
        if outcome == "COMPLETED":
            task.result = text
        elif text:
            code, _, message = text.partition(": ")
            task.error = {"code": free(code, 255) or "?", "message": free(message, 2000)}
            if traceback:
                task.error["traceback"] = free(traceback, 8000)
            if outcome in ("LOST", "RETURNED", "QUARANTINED"):
                task.reason = message or code
        self._count(task.name, outcome, seconds)
        if self._is_notable(task):
            self._ended.append(task)

    def _count(self, name: str, outcome: str, seconds: float) -> None:
        name = plain(name) or "?"
        if name not in self._sums and len(self._sums) >= NAMES - 1:
            name = OTHERS
        sums = self._sums.setdefault(name, dict.fromkeys(SUMS, 0))
        sums["seconds"] += seconds
        if outcome in COUNTED:
            sums[COUNTED[outcome]] += 1
        self._changed.add(name)

    def _is_notable(self, task: Task) -> bool:
        if self._level == "servers" or (task.queue and task.queue == self._unrecorded):
            return False
        if task.state in ("FAILED", "RETRIED", "LOST", "QUARANTINED") or task.recorded or task.is_known:
            return True  # else a job would wait for ever for the end of a task that was short the second time
        if self._level == "everything":
            return True
        return self._clock() - task.since >= NOTABLE_AFTER

    def note(self, state: str, id: str, name: str, queue: str, reason: str | None = None) -> None:
        """What was heard of a task that is not held here: it is in quarantine, or was sent out of it."""
        with self._lock:
            task = Task("", id, name, queue, attempt=str(uuid.uuid4()), since=self._clock(), state=state, reason=reason)
            self._ended.append(task)

    def running(self) -> set[str] | None:
        """Tags of the tasks whose code may run; None when that is not known."""
        with self._lock:
            return {tag for tag, task in self._held.items() if task.state == "RUNNING"} if self.is_complete else None

    def held(self) -> list[str]:
        with self._lock:
            return list(self._held)

    def ids_of(self, attempts: Collection[str]) -> list[str]:
        """The tasks of these attempts that are held here."""
        with self._lock:
            return [task.id for task in self._held.values() if task.attempt in attempts]

    def pids(self) -> set[int]:
        with self._lock:
            return {task.pid for task in self._held.values() if task.pid}

    def counts(self) -> dict[str, int]:
        with self._lock:
            running = sum(task.state == "RUNNING" for task in self._held.values())
            return {"running": running, "prefetched": len(self._held) - running}

    def holds(self) -> bool:
        return bool(self._held) or not self.is_complete

    def end(self, tag: str, outcome: str, text: str) -> None:
        """Given back after the worker's death."""
        with self._lock:
            if task := self._held.pop(tag, None):
                self._end(task, outcome, 0.0, text)

    def next_batch(self) -> dict[str, Any] | None:
        """The body of a call that reports what is new, to be confirmed; None when nothing is."""
        with self._lock:
            now = self._clock()
            due = [*self._ended, *(task for task in self._held.values() if self._is_due(task, now))]
            tasks: list[dict[str, Any]] = []
            words: Counter[str] = Counter()
            room = BATCH_BYTES
            self._sent = []
            for task in due:
                record = task.record(now)
                words[task.id] += 1
                room -= len(json.dumps(record))
                if len(tasks) == BATCH or (tasks and room < 0):
                    break
                if words[task.id] <= SAME:
                    tasks.append(record)
                    self._sent.append((task, task.state))
            if self._level == "servers" or not (tasks or self._changed):
                return None
            self._sent_names, self._changed = self._changed, set()
            tally = [{"name": name, **self._sums[name]} for name in sorted(self._sent_names)]
            return {"tasks": tasks, **({"counter": self.counter, "tally": tally} if tally else {})}

    def _is_due(self, task: Task, now: float) -> bool:
        if task.recorded == task.state:
            return now - task.recorded_at >= AGAIN_AFTER
        return self._is_notable(task)

    def confirm(self) -> None:
        with self._lock:
            now = self._clock()
            for task, state in self._sent:
                task.recorded, task.recorded_at = state, now
            # One that was sent as running may have ended while the call was under way.
            sent = {id(task) for task, state in self._sent if state == task.state}
            self._ended = [task for task in self._ended if id(task) not in sent]

    def take_back(self) -> None:
        """The batch was not answered."""
        with self._lock:
            self._changed |= self._sent_names
            del self._ended[:-WAITING]
