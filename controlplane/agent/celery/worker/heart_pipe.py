"""The worker's side of the pipes to its heart.

It starts the heart, sends messages and reads orders, without waiting.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterable

from controlplane.agent.celery.deadline import Deadline
from controlplane.agent.celery.messages import (
    MOST,
    FromWorker,
    Greeting,
    MessagesDropped,
    Order,
    WorkerEnding,
    decode,
    encode,
    encode_greeting,
)
from controlplane.agent.processes import environment

log = logging.getLogger(__name__)


class HeartPipe:
    """Connection to the heart of one worker. Only the worker's main process uses it."""

    def __init__(self, greeting: Greeting, list_held: Callable[[], Iterable[FromWorker]]) -> None:
        """Prepare the connection. `list_held` returns the messages from which a new heart learns all tasks."""
        self.deadline = Deadline.made()
        self._greeting = encode_greeting(greeting)
        self._passed = [self.deadline.descriptor, *([] if greeting.lock is None else [greeting.lock])]
        self._list_held = list_held
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe = self._orders = -1
        self._pending = b""
        self._has_dropped = False
        self._owner = os.getpid()
        self._has_ended = False
        # The end of the pipe shows the heart that the worker has ended. So no child may keep the pipe open.
        os.register_at_fork(after_in_child=self._close)

    def keep_running(self) -> None:
        """Start a heart if none runs, and send all tasks to it."""
        if self._has_ended or (self._process and self._process.poll() is None):
            return
        if self._process:
            log.warning("The heart ended (status %s); starting another", self._process.returncode)
            self._close()
        (stdin, self._pipe), (self._orders, stdout) = os.pipe(), os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "controlplane.agent.celery.heart", str(self.deadline.descriptor)],
            stdin=stdin,
            stdout=stdout,
            env=environment.with_modules({**os.environ, "PYTHONWARNINGS": "ignore"}),
            pass_fds=self._passed,
            start_new_session=True,  # signals to the worker's process group must not reach the heart
        )
        os.close(stdin)
        os.close(stdout)
        os.write(self._pipe, self._greeting)
        os.set_blocking(self._pipe, False)
        os.set_blocking(self._orders, False)
        self._pending, self._has_dropped = b"", False
        for message in self._list_held():
            self.send(message)

    def send(self, message: FromWorker) -> None:
        """Send a message. Drop the message if the pipe is full, because the worker must not wait for its heart."""
        data = encode(message, MOST)
        if self._has_dropped:
            data = encode(MessagesDropped()) + data
        try:
            os.write(self._pipe, data)
        except BlockingIOError:
            self._has_dropped = True
        except OSError:
            pass  # the heart has ended; the next heart receives all tasks
        else:
            self._has_dropped = False

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
        if os.getpid() != self._owner or self._has_ended or not self._process:
            return
        self._has_ended = True
        self.send(WorkerEnding(state))
        self._close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(within)

    def _close(self) -> None:
        for descriptor in (self._pipe, self._orders):
            if descriptor >= 0:
                with contextlib.suppress(OSError):
                    os.close(descriptor)
        self._pipe = self._orders = -1
