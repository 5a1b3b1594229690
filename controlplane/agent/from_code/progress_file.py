"""The progress of an attempt: the last line of the file that JOB_PROGRESS names."""

from __future__ import annotations

from typing import Any

from controlplane.agent.from_code.logs import decode_text
from controlplane.agent.from_code.reported_file import ReportedFile, read_file
from controlplane.agent.limits import MESSAGE_LIMIT

TAIL_BYTES = 8192  # bytes that are read


class ProgressFile(ReportedFile):
    """A file with one line for each progress report. The last line counts."""

    _reported_line = ""

    def read_news(self, *, is_last: bool) -> dict[str, Any] | None:
        data = read_file(self.path, TAIL_BYTES, from_end=True)
        line = decode_text(data.rstrip().rpartition(b"\n")[2]).strip()
        if line in ("", self._reported_line):
            return None
        self._reported_line = line
        return {"event": "PROGRESS", **parse_progress(line)}


def parse_progress(line: str) -> dict[str, Any]:
    """Return progress and message of a line like `0.4 copying`.

    A line that does not start with a number from 0 to 1 is a message.
    """
    number, _, rest = line.partition(" ")
    try:
        progress = float(number)
    except ValueError:
        progress = -1
    if not 0 <= progress <= 1:
        return {"message": line[:MESSAGE_LIMIT]}
    message = rest.strip()[:MESSAGE_LIMIT]
    return {"progress": progress, **({"message": message} if message else {})}
