"""Reports, kept until they are answered."""

from __future__ import annotations

import json
import threading
from collections import deque
from typing import Any

Report = dict[str, Any]

BATCH_COUNT = 100
BATCH_BYTES = 700_000  # a body may have 1 MiB


class Outbox:
    """A queue of reports in the order they happened; what is sent again is sent exactly as it was. Thread safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reports: deque[Report] = deque()
        self._sent = 0  # how many at the head were in a request at least once

    def __len__(self) -> int:
        return len(self._reports)

    def unanswered(self) -> list[Report]:
        with self._lock:
            return list(self._reports)

    def put(self, *reports: Report) -> None:
        """Those put together go in one request, if they fit."""
        with self._lock:
            self._reports.extend(reports)

    def batch(self) -> list[Report]:
        """The oldest reports that fit one request; they stay until `answered`."""
        with self._lock:
            taken: list[Report] = []
            room = BATCH_BYTES
            for report in self._reports:
                room -= len(json.dumps(report))
                if taken and (room < 0 or len(taken) == BATCH_COUNT):
                    break
                taken.append(report)
            self._sent = max(self._sent, len(taken))
            return taken

    def answered(self, count: int) -> None:
        """The oldest `count` reports were answered, whatever the answer."""
        with self._lock:
            for _ in range(count):
                self._reports.popleft()
            self._sent = max(0, self._sent - count)

    def replace_oldest(self, report: Report) -> None:
        """The one exception to "as it was": the control plane cannot read the oldest report."""
        with self._lock:
            self._reports[0] = report

    def withdraw(self, attempt: str) -> bool:
        """Drop what was never sent about `attempt`; True when nothing about it remains here."""
        with self._lock:
            reports = list(self._reports)
            sent, unsent = reports[: self._sent], reports[self._sent :]
            self._reports = deque(sent + [report for report in unsent if report["attempt"] != attempt])
            return all(report["attempt"] != attempt for report in sent)
