"""State of a protected worker that the modules of this package share: options, connection, requests, pipe."""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

from celery.worker import state
from kombu import Connection

from controlplane.agent.celery.broker.unacked import UnackedMessages
from controlplane.agent.celery.messages import FromWorker, TaskEnded, TaskHeld
from controlplane.agent.celery.options import CeleryOptions
from controlplane.agent.celery.worker.kept_ends import KeptEnds

# Number of finished tasks whose tags are remembered, because an acknowledgement may be lost with its connection.
DONE = 10_000


class WorkerContext:
    """State of one worker in its main process. It stays the same when the worker connects again."""

    def __init__(
        self,
        worker: Any,
        options: CeleryOptions,
        instance: str,
        kind: str,
        connection: Connection,
        send: Callable[[FromWorker], None],
    ) -> None:
        """Prepare the state. `kind` is kombu's driver type, such as "redis".

        `send` sends a message to the heart without waiting.
        """
        self.worker, self.app, self.options = worker, worker.app, options
        self.instance, self.kind, self.connection = instance, kind, connection
        self.send = send
        self.ends = KeptEnds(options.record)
        self.unacked: UnackedMessages | None = None  # on Redis
        self.errors: tuple[type[Exception], ...] = ()  # of Redis
        self.consumes = True  # False while the worker is cordoned or ends
        self.open: dict[str, str] = {}  # attempts of the requests that are not settled yet, by tag
        self._opening = threading.Lock()  # tasks may end in threads of the pool
        self.done: deque[str] = deque(maxlen=DONE)  # tags of acknowledged messages
        self.in_pool: WeakSet[ProtectedRequest] = WeakSet()  # requests that were passed to a pool without processes

    def record_received(self, tag: str, attempt: str) -> None:
        with self._opening:
            self.open[tag] = attempt

    def record_acknowledged(self, tag: str, attempt: str) -> None:
        self.done.append(tag)
        self.record_returned(tag, attempt)

    def record_returned(self, tag: str, attempt: str) -> None:
        """Record that a message is settled or returns to its queue.

        On Redis the message may come back at once with the same tag, as another attempt. This attempt stays open.
        """
        with self._opening:
            if self.open.get(tag) == attempt:
                del self.open[tag]

    def keep_running_requests(self) -> list[ProtectedRequest]:
        """Forget the open requests that no code will run, and return the others. Call it after a lost connection.

        Celery forgets what it does not run when it loses a connection. What waits in a pool without processes still
        runs, although Celery has forgotten it.
        """
        running = [one for one in state.active_requests if isinstance(one, ProtectedRequest)]
        running += [one for one in self.in_pool if not one.is_reported and one not in running]
        with self._opening:
            before, self.open = self.open, {one.tag: one.attempt for one in running if one.tag in self.open}
            forgotten = before.keys() - self.open.keys()
        for tag in forgotten:
            self.send(TaskEnded(tag, "RETURNED", 0.0))
        return running


class ProtectedRequest:
    """Base of all protected requests. `tag` identifies the delivery."""

    tag: str
    held: TaskHeld
    since: float  # time.monotonic() when it was received
    time_start: float | None
    worker_pid: int | None
    attempt: str
    is_given = False  # True if it was passed to a child of the pool, so its code may run
    is_reported = False  # True if its end was sent to the heart


def is_prefork(worker: Any) -> bool:
    """Return True if each task runs in a process that runs nothing else at the same time."""
    return bool(worker.pool_cls.__module__ == "celery.concurrency.prefork")


def make_attempt_id() -> str:
    """Return a version 7 UUID, because such ids sort by age. Python 3.11 cannot make them."""
    number = time.time_ns() // 1_000_000 << 80 | int.from_bytes(os.urandom(10), "big")
    return str(uuid.UUID(int=number & ~(0xF << 76 | 0x3 << 62) | 0x7 << 76 | 0x2 << 62))
