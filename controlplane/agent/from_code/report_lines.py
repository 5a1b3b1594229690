"""Reports in lines of output: `::progress 0.4 copying` and `::checkpoint {"row": 17}`.

Code in a pod uses them, because it has no files of its attempt.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

REPORTS_BY, BY_LINES = "JOB_REPORTS", "lines"
"""The variable and value with which code reports by lines."""
PREVIOUS = "JOB_CHECKPOINT_VALUE"
"""The variable with the last checkpoint, as JSON."""
FILES = {"progress": "JOB_PROGRESS", "checkpoint": "JOB_CHECKPOINT"}
"""The variable for the file of each kind of report."""
HELD_LIMIT = 256 * 1024  # bytes of a line: a longer line is output and never a report


def report_line(variable: str, text: str) -> str:
    """Return the line that replaces writing `text` to the file in this variable."""
    word = next(word for word, file in FILES.items() if file == variable)
    return f"::{word} {text}"


def describe_lines(checkpoint: Any) -> dict[str, str]:
    """Return the variables for code that reports by lines."""
    known = json.dumps(checkpoint, ensure_ascii=False, separators=(",", ":"))
    return {REPORTS_BY: BY_LINES, **({} if checkpoint is None else {PREVIOUS: known})}


def replace_file(file: Path, data: bytes) -> None:
    """Replace a file atomically. Raise OSError."""
    draft = file.with_name(f"{file.name}.draft")
    draft.write_bytes(data)
    os.replace(draft, file)  # so that readers never see a part of it


class ReportLines:
    """Write the output of code to `output`, and its report lines to the `files` of the attempt."""

    def __init__(self, output: IO[bytes], files: Mapping[str, Path]) -> None:
        self._output, self._held = output, b""
        self._files = {f"::{word} ".encode(): files[file] for word, file in FILES.items() if file in files}
        self._is_inside_line = False  # the start of the line was written already

    def write_chunk(self, chunk: bytes) -> None:
        """Write output. The start of a possible report line waits for its end."""
        *lines, rest = (self._held + chunk).split(b"\n")
        for line in lines:
            self._write_line(line + b"\n")
        self._held = rest
        if rest and (self._is_inside_line or not self._may_be_report(rest)):
            self._hand_on(rest)
            self._held = b""

    def close(self) -> None:
        """Write the rest at the end of the output."""
        if self._held:
            self._hand_on(self._held)  # half a line: the connection may have ended inside a report
        self._held, self._is_inside_line = b"", False

    def _write_line(self, line: bytes) -> None:
        prefix = next((prefix for prefix in self._files if line.startswith(prefix)), None)
        if prefix is None or self._is_inside_line or len(line) > HELD_LIMIT:
            self._hand_on(line)
            return
        with contextlib.suppress(OSError):
            replace_file(self._files[prefix], line.removeprefix(prefix))

    def _hand_on(self, data: bytes) -> None:
        self._is_inside_line = not data.endswith(b"\n")
        self._output.write(data)
        self._output.flush()

    def _may_be_report(self, begin: bytes) -> bool:
        return len(begin) <= HELD_LIMIT and any(prefix.startswith(begin[: len(prefix)]) for prefix in self._files)
