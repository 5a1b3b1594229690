"""A file through which an attempt's code says something: looked at once in a while, reported when it has changed."""

from __future__ import annotations

import os
import stat
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

REPORT_PAUSE = 1.0  # seconds: however often the code says something, the last of it is reported once in so many


class ReportedFile(ABC):
    """The file of one attempt. It is there once the code has written to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._next_look_at = 0.0  # monotonic
        self._awaits_answer = False  # for the answer to the last report

    def next_report_at(self) -> float | None:
        """When to `take_reports` (monotonic); None: not before the last report was answered."""
        return None if self._awaits_answer else self._next_look_at

    def take_reports(self) -> list[dict[str, Any]]:
        """What is new, as a report without its attempt."""
        now = time.monotonic()
        if self._awaits_answer or now < self._next_look_at:
            return []
        self._next_look_at = now + REPORT_PAUSE
        return self._report_news()

    def record_answer(self) -> None:
        """The report was, whatever the answer."""
        self._awaits_answer = False

    def close(self) -> list[dict[str, Any]]:
        """The last word."""
        return self._report_news(is_last=True)

    def _report_news(self, *, is_last: bool = False) -> list[dict[str, Any]]:
        news = self.read_news(is_last=is_last)
        self._awaits_answer = self._awaits_answer or news is not None
        return [] if news is None else [news]

    @abstractmethod
    def read_news(self, *, is_last: bool) -> dict[str, Any] | None:
        """A report of what is new; None: nothing is. `is_last`: the code has ended."""


def read_file(path: Path, most: int, *, from_end: bool = False) -> bytes:
    """At most so many bytes; none when there is no such file. Never waits, whatever the code has made of the file: in a
    container it may have been root, and made a device of it."""
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            return b""
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return b""
    try:
        return os.pread(descriptor, most, max(0, os.fstat(descriptor).st_size - most) if from_end else 0)
    except OSError:
        return b""
    finally:
        os.close(descriptor)
