"""Ends of tasks that a worker keeps until the control plane knows them.

A heart may be killed before it reports an end. Without the end, the job of the task would wait for a message that no
longer exists.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

from controlplane.agent.celery.messages import FromWorker, TaskEnded, TaskHeld, TaskRunning

KEPT = 5000  # largest number of ends; of more, the latest are kept
# Seconds that a task must be held. The heart reports a task that it has held for a second, and may read the end late.
KEPT_AFTER = 0.5
ALWAYS_REPORTED = ("FAILED", "RETRIED", "LOST", "QUARANTINED")


class KeptEnds:
    """The kept ends of one worker, by attempt. Thread safe: a task may end in a thread of the pool.

    On Redis a message that returns to the same worker has the same tag again, but it is another attempt.
    """

    def __init__(self, level: str) -> None:
        """Keep nothing yet. `level` is the option `record`."""
        self._level = level
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[TaskHeld, float, list[FromWorker]]] = {}  # with the time of its receipt

    def may_be_recorded(self, held: TaskHeld, since: float) -> bool:
        """Return True if a heart may have reported this task. `since` is the time.monotonic() of its receipt."""
        if self._level == "notable":
            return held.is_known or time.monotonic() - since >= KEPT_AFTER
        return self._level == "everything"

    def describe_again(self, held: TaskHeld, since: float) -> TaskHeld:
        """Return the message about a held task for a heart that does not know it."""
        return with_age(held, since) if self.may_be_recorded(held, since) else held

    def keep(self, held: TaskHeld, end: TaskEnded, since: float, *, has_started: bool) -> TaskEnded:
        """Keep an end if the control plane must learn it. Return the message for the heart."""
        is_reported = self._level != "servers" and end.outcome in ALWAYS_REPORTED
        if not is_reported and not self.may_be_recorded(held, since):
            return end
        end = end._replace(kept_attempt=held.attempt)
        running = [TaskRunning(held.tag, None)] if has_started else []
        with self._lock:
            self._kept[held.attempt] = (held, since, [*running, end])
            while len(self._kept) > KEPT:
                del self._kept[next(iter(self._kept))]
        return end

    def list_messages(self) -> list[FromWorker]:
        """Return the messages from which a new heart learns the kept ends."""
        with self._lock:
            return [message for held, since, rest in self._kept.values() for message in (with_age(held, since), *rest)]

    def forget(self, attempts: Iterable[str]) -> None:
        with self._lock:
            for attempt in attempts:
                self._kept.pop(attempt, None)


def with_age(held: TaskHeld, since: float) -> TaskHeld:
    # The control plane orders the deliveries of a task by their ages.
    return held._replace(held_for=max(0.001, time.monotonic() - since))
