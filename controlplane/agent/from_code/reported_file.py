"""A file through which the code of an attempt reports. It is read regularly, and reported when it has changed."""

from __future__ import annotations

import os
import stat
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

FIRST_LOOK = 0.25  # seconds until the first look at the files of an attempt in a pool process
REPORT_PAUSE = 1.0  # seconds between two reports: only the last content is reported


class ReportedFile(ABC):
    """A file of one attempt. It exists once the code has written to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._next_look_at = 0.0  # monotonic
        self._awaits_answer = False  # the last report is not answered yet

    def move(self, path: Path) -> None:
        """Use another path, before the code begins. The first look comes later than most tasks end."""
        self.path, self._next_look_at = path, time.monotonic() + FIRST_LOOK

    def next_report_at(self) -> float | None:
        """Return when to call `take_reports` (monotonic), or None until the last report is answered."""
        return None if self._awaits_answer else self._next_look_at

    def take_reports(self) -> list[dict[str, Any]]:
        """Return new content as reports without an attempt id."""
        now = time.monotonic()
        if self._awaits_answer or now < self._next_look_at:
            return []
        self._next_look_at = now + REPORT_PAUSE
        return self._report_news()

    def record_answer(self) -> None:
        """Record that the last report was answered."""
        self._awaits_answer = False

    def close(self) -> list[dict[str, Any]]:
        """Return the last report."""
        return self._report_news(is_last=True)

    def _report_news(self, *, is_last: bool = False) -> list[dict[str, Any]]:
        news = self.read_news(is_last=is_last)
        self._awaits_answer = self._awaits_answer or news is not None
        return [] if news is None else [news]

    @abstractmethod
    def read_news(self, *, is_last: bool) -> dict[str, Any] | None:
        """Return a report of new content, or None. `is_last` is True if the code has ended."""


def read_file(path: Path, most: int, *, from_end: bool = False) -> bytes:
    """Return at most `most` bytes, or nothing if there is no such file.

    Never wait: in a container the code may be root and may have replaced the file by a device.
    """
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
