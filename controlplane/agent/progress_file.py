"""How far the code of an attempt has come, as it says itself: in the last line of the file that JOB_PROGRESS names."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Any

from controlplane.agent.limits import MESSAGE_LIMIT
from controlplane.agent.logs import decode_text

REPORT_PAUSE = 1.0  # seconds: however often the code says something, the last of it is reported once in so many
TAIL_BYTES = 8192  # bytes that are read


class ProgressFile:
    """The file of one attempt. It is there once the code has written to it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._reported_line = ""
        self._next_look_at = 0.0  # monotonic
        self._awaits_answer = False  # for the answer to the last report

    def next_report_at(self) -> float | None:
        """When to `take_reports` (monotonic); None: not before the last report was answered."""
        return None if self._awaits_answer else self._next_look_at

    def take_reports(self) -> list[dict[str, Any]]:
        """What is new, as a PROGRESS report without its attempt."""
        now = time.monotonic()
        if self._awaits_answer or now < self._next_look_at:
            return []
        self._next_look_at = now + REPORT_PAUSE
        return self._new_reports()

    def record_answer(self) -> None:
        """The report was, whatever the answer."""
        self._awaits_answer = False

    def close(self) -> list[dict[str, Any]]:
        """The last word; the file is removed."""
        news = self._new_reports()
        for left in (self._path, self._path.with_name(f"{self._path.name}.draft")):
            with contextlib.suppress(OSError):
                left.unlink()
        return news

    def _new_reports(self) -> list[dict[str, Any]]:
        line = read_last_line(self._path)
        if line in ("", self._reported_line):
            return []
        self._reported_line, self._awaits_answer = line, True
        return [{"event": "PROGRESS", **parse_progress(line)}]


def read_last_line(path: Path) -> str:
    """Empty when there is none. Never waits, whatever the code has made of the file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        data = os.pread(descriptor, TAIL_BYTES, max(0, os.fstat(descriptor).st_size - TAIL_BYTES))
    except OSError:
        return ""
    finally:
        os.close(descriptor)
    return decode_text(data.rstrip().rpartition(b"\n")[2]).strip()


def parse_progress(line: str) -> dict[str, Any]:
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
