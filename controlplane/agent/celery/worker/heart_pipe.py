"""The worker's side of the pipes to its heart.

It starts the heart, sends messages and reads orders, without waiting.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable

from controlplane.agent.celery.deadline import Deadline
from controlplane.agent.celery.messages import (
    MOST,
    FromWorker,
    Greeting,
    MessagesDropped,
    Order,
    WorkerEnding,
    WorkerStopping,
    decode,
    encode,
    encode_greeting,
)
from controlplane.agent.processes import environment

log = logging.getLogger(__name__)
TICK = 0.5  # seconds between two calls of `keep_running`
WAITING = 100_000  # largest number of messages that wait for a heart that does not read


class HeartPipe:
    """Connection to the heart of one worker. Only the worker's main process uses it. Thread safe."""

    def __init__(self, greeting: Greeting, list_held: Callable[[], Iterable[FromWorker]]) -> None:
        """Prepare the connection. `list_held` returns the messages from which a new heart learns all tasks."""
        self.deadline = Deadline.made()
        self._greeting = encode_greeting(greeting)
        self._passed = [self.deadline.descriptor, *([] if greeting.lock is None else [greeting.lock])]
        self._list_held = list_held
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe = self._orders = -1
        self._pending = b""
        self._lock = threading.RLock()  # needed, because tasks may end in threads of the pool
        self._waiting: deque[bytes] = deque()  # messages that did not fit into the pipe yet
        self._has_dropped = False
        self._ends: list[FromWorker] = []
        self._owner = os.getpid()
        self._has_ended = False
        # The end of the pipe shows the heart that the worker has ended. So no child may keep the pipe open.
        os.register_at_fork(after_in_child=self._close)

    def keep_running(self) -> bool:
        """Start a heart if none runs, and send all tasks to it. Return False after `end`. Called twice a second."""
        with self._lock:
            if self._has_ended:
                return False
            if self._process and self._process.poll() is None:
                self._continue()
                return True
            if self._process:
                log.warning("The heart ended (status %s); starting another", self._process.returncode)
                self._close()
            self._start()
            self._waiting.clear()
            self._has_dropped = False
            self._list_all()
            return True

    def _start(self) -> None:
        (stdin, self._pipe), (self._orders, stdout) = os.pipe(), os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "controlplane.agent.celery.heart", str(self.deadline.descriptor)],
                stdin=stdin,
                stdout=stdout,
                env=environment.with_modules({**os.environ, "PYTHONWARNINGS": "ignore"}),
                pass_fds=self._passed,
                start_new_session=True,  # signals to the worker's process group must not reach the heart
            )
        finally:
            os.close(stdin)
            os.close(stdout)
        os.write(self._pipe, self._greeting)
        os.set_blocking(self._pipe, False)
        os.set_blocking(self._orders, False)
        self._pending = b""

    def keep_running_until_end(self) -> None:
        """Call `keep_running` in a thread. In a warm shutdown tasks may run for long, and no main loop calls it."""
        threading.Thread(target=self._keep_running, name="heart", daemon=True).start()

    def _keep_running(self) -> None:
        is_open = True
        while is_open:
            try:
                is_open = self.keep_running()
            except Exception:  # such as a lack of memory, which may end
                log.exception("The heart could not be started; trying again")
            time.sleep(TICK)

    def report_end(self, message: WorkerStopping | WorkerEnding) -> None:
        """Send a message about the end of this worker. If the heart is replaced, the next one gets it too."""
        with self._lock:
            self._ends.append(message)
            self.send(message)

    def send(self, message: FromWorker) -> None:
        """Send a message, now or later, because the worker must not wait for its heart.

        If too many messages wait, drop them. Then all tasks are sent once the heart reads again.
        """
        with self._lock:
            if self._pipe < 0 or self._has_dropped:
                return
            data = encode(message, MOST)
            if not self._waiting and not (data := self._rest_of(data)):
                return  # nearly always
            self._waiting.append(data)
            self._write()
            if len(self._waiting) > WAITING:
                self._waiting.clear()
                self._has_dropped = True

    # Inside; callers hold the lock

    def _list_all(self) -> None:
        self._waiting.extend(encode(message, MOST) for message in (*self._list_held(), *self._ends))
        self._write()

    def _continue(self) -> None:
        """Write what waits. If messages were dropped and the heart reads again, send all tasks."""
        if self._has_dropped:
            self._waiting.append(encode(MessagesDropped()))
        self._write()
        if self._has_dropped and not self._waiting:
            self._has_dropped = False
            self._list_all()
        elif self._has_dropped:
            self._waiting.clear()

    def _write(self) -> None:
        while self._waiting:
            if rest := self._rest_of(self._waiting[0]):
                self._waiting[0] = rest
                return
            self._waiting.popleft()

    def _rest_of(self, data: bytes) -> bytes:
        """Write to the pipe. Return what did not fit."""
        try:
            return data[os.write(self._pipe, data) :]
        except BlockingIOError:
            return data
        except OSError:
            return b""  # the heart has ended; the next heart receives all tasks

    # Used by the worker

    def read_orders(self) -> list[Order]:
        with contextlib.suppress(OSError):
            while data := os.read(self._orders, 65536):
                self._pending += data
        *lines, self._pending = self._pending.split(b"\n")
        return [decode(line) for line in lines]

    def end(self, state: str, within: float) -> None:
        """Send the final state of this worker, and wait until the heart has ended.

        If the worker is the first process of a container and does not wait, the heart is killed before it reports the
        state.
        """
        if os.getpid() != self._owner:
            return
        with self._lock:
            if self._has_ended or not self._process:
                return
            self._has_ended = True
            if self._has_dropped:
                self._waiting.append(encode(MessagesDropped()))
            self._has_dropped = False
            self.send(WorkerEnding(state))
        until = time.monotonic() + within
        while self._waiting and time.monotonic() < until:
            time.sleep(0.02)
            with self._lock:
                self._write()
        self._close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(within)

    def _close(self) -> None:
        for descriptor in (self._pipe, self._orders):
            if descriptor >= 0:
                with contextlib.suppress(OSError):
                    os.close(descriptor)
        self._pipe = self._orders = -1
