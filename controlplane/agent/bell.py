"""What wakes the main thread: signals, ended children, other threads."""

from __future__ import annotations

import contextlib
import os
import signal
from collections import deque
from types import FrameType


class Interrupted(BaseException):
    """A SIGTERM or SIGINT came while there was nothing to wind down yet; like KeyboardInterrupt no Exception."""


class Bell:
    """A pipe to select on. A signal handler may not take a lock, a pipe and a deque need none."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self.signals: deque[int] = deque()
        self.interrupting = True  # until a server is registered a signal raises Interrupted

    def install(self) -> None:
        """Main thread only."""
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # only so that the wakeup fd hears of it

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self.signals.append(number)
        if self.interrupting:
            raise Interrupted(signal.Signals(number).name)

    def fileno(self) -> int:
        return self._read

    def ring(self) -> None:
        """From any thread."""
        with contextlib.suppress(BlockingIOError):  # full of rings that were not heard yet
            os.write(self._write, b"\0")

    def hush(self) -> None:
        try:
            while os.read(self._read, 4096):
                pass
        except BlockingIOError:
            pass
