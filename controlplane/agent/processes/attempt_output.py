"""Output of attempts that share a process. Each text is sent as output of the attempt that wrote it."""

from __future__ import annotations

import contextvars
import io
import json
import os
import threading
from typing import Any

TEXT_LIMIT = 16 * 2**10  # characters of output in one line
RUNNING: contextvars.ContextVar[str | None] = contextvars.ContextVar("controlplane_running", default=None)
"""The id of the attempt that the current code belongs to."""


class Answers:
    """The pipe to the agent. Any thread may write a line."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._lock = descriptor, threading.Lock()

    def write(self, line: bytes) -> None:
        with self._lock:
            rest = memoryview(line + b"\n")
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]


class AttemptOutput(io.TextIOBase):
    """Standard output or error. Text that no attempt wrote is dropped."""

    encoding = "utf-8"

    def __init__(self, stream: str, answers: Answers) -> None:
        self._stream, self._answers = stream.encode(), answers
        self._lines: dict[str, str] = {}
        self._descriptor = 1 if stream == "STDOUT" else 2
        self.buffer = BytesOutput(self)

    def fileno(self) -> int:
        return self._descriptor

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if key := RUNNING.get():
            whole, newline, rest = (self._lines.pop(key, "") + text).rpartition("\n")
            if len(rest) > TEXT_LIMIT:
                whole, newline, rest = whole + newline + rest, "", ""
            if rest:
                self._lines[key] = rest
            self._send(key, whole + newline)
        return len(text)

    def end(self, key: str) -> None:
        """Send the last line of an attempt."""
        self._send(key, self._lines.pop(key, ""))

    def _send(self, key: str, text: str) -> None:
        for start in range(0, len(text), TEXT_LIMIT):
            part = json.dumps(text[start : start + TEXT_LIMIT]).encode()
            self._answers.write(b"O %s %s %s" % (key.encode(), self._stream, part))


class BytesOutput(io.RawIOBase):
    def __init__(self, output: AttemptOutput) -> None:
        self._output = output

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._output.write(bytes(data).decode(errors="replace"))
        return len(data)
