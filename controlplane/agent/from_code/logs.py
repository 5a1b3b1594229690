"""The output of the code of an attempt, collected line by line for the control plane."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from typing import Any

from controlplane.agent.limits import LINE_LIMIT, LINES_KEPT, REPORT_LINES_LIMIT

BUFFER = 1024 * 1024  # characters that may wait here; more lines are dropped
OVERHEAD = 64  # approximate memory of a line besides its text
DELAY = 0.5  # seconds that a line waits for others
LINES_WITHOUT_DELAY = 100  # this many waiting lines are sent without a delay
# Limits for one turn, so that reports of other attempts are not delayed. The characters fit a request even if all are
# escaped.
REPORT_CHARACTERS, REPORTS = 64 * 1024, 50


def decode_text(data: bytes) -> str:
    """Return any bytes as text that JSON and PostgreSQL accept."""
    return data.decode("utf-8", errors="replace").replace("\0", "\N{REPLACEMENT CHARACTER}")


class LineSplitter:
    """Split chunks of bytes into lines. A line that is too long is cut."""

    def __init__(self) -> None:
        self._rest = b""
        self._skips = False  # skip the rest of a line that was cut

    def split_chunk(self, chunk: bytes) -> Iterator[str]:
        *whole, self._rest = (self._rest + chunk).split(b"\n")
        for line in whole:
            if not self._skips:
                yield truncate_line(line)
            self._skips = False
        if self._skips:
            self._rest = b""
        elif len(self._rest) > LINE_LIMIT:
            yield truncate_line(self._rest)
            self._rest, self._skips = b"", True

    def close(self) -> Iterator[str]:
        """Yield the last line if it has no line end."""
        rest, self._rest = self._rest, b""
        if rest:
            yield truncate_line(rest)


def truncate_line(line: bytes) -> str:
    """Return a line as it is sent."""
    if len(line) <= LINE_LIMIT:
        return decode_text(line.removesuffix(b"\r"))
    end = LINE_LIMIT - len("…".encode())
    while end > LINE_LIMIT - 8 and line[end] & 0xC0 == 0x80:
        end -= 1  # do not cut inside a character
    return decode_text(line[:end]) + "…"


class AttemptLog:
    """The lines of one attempt that were not sent yet. Their number is limited, and the code never blocks.

    The results of `take_reports` must be sent in order. It returns no more until all are answered (`record_answer`).
    """

    def __init__(self) -> None:
        self._splitters = {"STDOUT": LineSplitter(), "STDERR": LineSplitter()}
        self._waiting: deque[tuple[str, str]] = deque()
        self._size = 0
        self._since = 0.0
        self._seen = 0
        self._dropped = 0
        self._dropped_from = ""
        self._unanswered = 0
        self._sequence = 0

    def write_chunk(self, stream: str, chunk: bytes) -> None:
        if self._seen <= LINES_KEPT:
            for line in self._splitters[stream].split_chunk(chunk):
                self._add_line(stream, line)

    def next_report_at(self) -> float | None:
        """Return when `take_reports` has something (monotonic), or None if it needs more output or an answer first."""
        if not self._waiting or self._unanswered:
            return None
        return self._since + (0 if len(self._waiting) >= LINES_WITHOUT_DELAY else DELAY)

    def take_reports(self) -> list[dict[str, Any]]:
        """Return due lines as LOG reports without an attempt id."""
        due = self.next_report_at()
        return list(self._build_reports()) if due is not None and time.monotonic() >= due else []

    def record_answer(self) -> None:
        """Record that one of the reports was answered."""
        self._unanswered -= 1

    def close(self) -> list[dict[str, Any]]:
        """Return reports of all lines that are left. Nothing may be written after this."""
        for stream, splitter in self._splitters.items():
            for line in splitter.close():
                self._add_line(stream, line)
        self._mark_dropped()
        reports: list[dict[str, Any]] = []
        while self._waiting:
            reports += self._build_reports()
        return reports

    def _add_line(self, stream: str, line: str) -> None:
        if self._seen > LINES_KEPT:
            return
        # After the buffer was full, empty it first: then there is one mark and not one after every few lines.
        if self._size >= BUFFER or (self._dropped and self._waiting):
            self._dropped += 1
            self._dropped_from = stream
            return
        self._mark_dropped()
        self._append_line(stream, line)

    def _mark_dropped(self) -> None:
        if self._dropped:
            count, self._dropped = self._dropped, 0
            self._append_line(
                self._dropped_from, f"… {count} lines were dropped: they came faster than they could be sent"
            )

    def _append_line(self, stream: str, line: str) -> None:
        if not self._waiting:
            self._since = time.monotonic()
        self._waiting.append((stream, line))
        self._size += len(line) + OVERHEAD
        self._seen += 1

    def _build_reports(self) -> Iterator[dict[str, Any]]:
        """Yield reports of some of the oldest lines: a new one whenever the stream changes."""
        room, lines_left, reports_left = REPORT_CHARACTERS, REPORT_LINES_LIMIT, REPORTS
        while self._waiting and room > 0 and lines_left and reports_left:
            stream, lines = self._waiting[0][0], []
            while self._waiting and self._waiting[0][0] == stream and room > 0 and lines_left:
                _, line = self._waiting.popleft()
                self._size -= len(line) + OVERHEAD
                room -= len(line)
                lines_left -= 1
                lines.append(line)
            reports_left -= 1
            yield {"event": "LOG", "stream": stream, "lines": lines, "sequence": self._sequence}
            self._sequence += 1
            self._unanswered += 1
