"""How far the code of an attempt has come, as it says itself: in the last line of the file that JOB_PROGRESS names."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Any

from controlplane.agent.logs import text

PAUSE = 1.0  # seconds: however often the code says something, the last of it is reported once in so many
TAIL = 8192  # bytes that are read
MESSAGE_LIMIT = 1000  # characters


class Gauge:
    """The file of one attempt. It is there once the code has written to it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._said = ""
        self._look_at = 0.0  # monotonic
        self._waits = False  # for the answer to the last report

    def due_at(self) -> float | None:
        """When to `take` (monotonic); None: not before the last report was answered."""
        return None if self._waits else self._look_at

    def take(self) -> list[dict[str, Any]]:
        """What is new, as a PROGRESS report without its attempt."""
        now = time.monotonic()
        if self._waits or now < self._look_at:
            return []
        self._look_at = now + PAUSE
        return self._news()

    def answered(self) -> None:
        """The report was, whatever the answer."""
        self._waits = False

    def close(self) -> list[dict[str, Any]]:
        """The last word; the file is removed."""
        news = self._news()
        for left in (self._path, self._path.with_name(f"{self._path.name}.draft")):
            with contextlib.suppress(OSError):
                left.unlink()
        return news

    def _news(self) -> list[dict[str, Any]]:
        line = last_line(self._path)
        if line in ("", self._said):
            return []
        self._said, self._waits = line, True
        return [{"event": "PROGRESS", **read(line)}]


def last_line(path: Path) -> str:
    """Empty when there is none. Never waits, whatever the code has made of the file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        data = os.pread(descriptor, TAIL, max(0, os.fstat(descriptor).st_size - TAIL))
    except OSError:
        return ""
    finally:
        os.close(descriptor)
    return text(data.rstrip().rpartition(b"\n")[2]).strip()


def read(line: str) -> dict[str, Any]:
    """`0.4 copying` → progress and message; a line that begins with no number from 0 to 1 is a message."""
    number, _, rest = line.partition(" ")
    try:
        progress = float(number)
    except ValueError:
        progress = -1
    if not 0 <= progress <= 1:
        return {"message": line[:MESSAGE_LIMIT]}
    message = rest.strip()[:MESSAGE_LIMIT]
    return {"progress": progress, **({"message": message} if message else {})}
