"""Wake the main thread for signals, ended children and messages of other threads."""

from __future__ import annotations

import contextlib
import os
import signal
from collections import deque
from types import FrameType


class InterruptedBySignal(BaseException):
    """A SIGTERM or SIGINT arrived before the registration. A BaseException, like KeyboardInterrupt."""


class Wakeup:
    """A pipe for select(). A signal handler may not take a lock, and a pipe and a deque need none."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self.signals: deque[int] = deque()
        self.is_interrupting = True  # until a server is registered, a signal raises InterruptedBySignal

    def install_handlers(self) -> None:
        """Install the signal handlers. Main thread only."""
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._record_signal)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # only so that the wakeup fd gets a byte

    def _record_signal(self, number: int, _frame: FrameType | None) -> None:
        self.signals.append(number)
        if self.is_interrupting:
            raise InterruptedBySignal(signal.Signals(number).name)

    def fileno(self) -> int:
        return self._read

    def wake_up(self) -> None:
        """Wake the main thread. Any thread may call this."""
        with contextlib.suppress(BlockingIOError):  # the pipe is full, so the main thread will wake
            os.write(self._write, b"\0")

    def clear_wakeups(self) -> None:
        try:
            while os.read(self._read, 4096):
                pass
        except BlockingIOError:
            pass
