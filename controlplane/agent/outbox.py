"""Reports, kept until they are answered."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter, deque
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from controlplane.agent.backoff import full_jitter
from controlplane.agent.limits import BODY_LIMIT

Report = dict[str, Any]

BATCH_COUNT = 100
BATCH_BYTES = 2 * BODY_LIMIT // 3


@dataclass
class DeferredReports:
    """Reports of one attempt, the first of which the control plane could not store."""

    reports: list[Report]
    due_at: float  # monotonic


class Outbox:
    """A queue of reports in the order they happened; what is sent again is sent exactly as it was. Thread safe.

    What the control plane could not store waits aside, and what follows of the same attempt behind it: nothing else
    waits for that.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reports: deque[Report] = deque()
        self._sent = 0  # how many at the head were in a request at least once
        self._deferred: dict[str, DeferredReports] = {}
        self._failures: Counter[str] = Counter()  # of attempts, in a row

    def __len__(self) -> int:
        return len(self._reports) + sum(len(deferred.reports) for deferred in list(self._deferred.values()))

    def unanswered_reports(self) -> list[Report]:
        """All that is here, what waits aside too."""
        with self._lock:
            return [*self._reports, *(report for deferred in self._deferred.values() for report in deferred.reports)]

    def add_reports(self, *reports: Report) -> None:
        """Those put together go in one request, if they fit."""
        with self._lock:
            for report in reports:
                deferred = self._deferred.get(report["attempt"])
                (deferred.reports if deferred else self._reports).append(report)

    def next_retry_at(self) -> float | None:
        """Monotonic: when something that waits aside is to be sent again."""
        with self._lock:
            return min((deferred.due_at for deferred in self._deferred.values()), default=None)

    def oldest_reports(self, count: int = BATCH_COUNT) -> list[Report]:
        """The oldest reports that fit one request; they stay until `record_answer`."""
        with self._lock:
            for attempt in [
                attempt for attempt, deferred in self._deferred.items() if deferred.due_at <= time.monotonic()
            ]:
                self._reports.extend(self._deferred.pop(attempt).reports)
            taken: list[Report] = []
            room = BATCH_BYTES
            for report in self._reports:
                room -= len(json.dumps(report))
                if taken and (room < 0 or len(taken) == count):
                    break
                taken.append(report)
            self._sent = max(self._sent, len(taken))
            return taken

    def record_answer(self, count: int, unstored: Collection[int] = (), cap: float = 0.0) -> None:
        """The oldest `count` reports were answered, whatever the answer; those at the places `unstored` are to be said
        again, after a pause of at most `cap` seconds."""
        with self._lock:
            gone = [self._reports.popleft() for _ in range(count)]
            kept = [report for place, report in enumerate(gone) if place in unstored]
            self._sent = max(0, self._sent - count)
            attempts = {report["attempt"] for report in kept}
            for report in gone:
                if report["attempt"] not in attempts:
                    self._failures.pop(report["attempt"], None)
            for attempt in attempts:
                self._failures[attempt] += 1
                behind = [report for report in self._reports if report["attempt"] == attempt]
                own = [report for report in kept if report["attempt"] == attempt]
                due_at = time.monotonic() + full_jitter(self._failures[attempt], cap)
                self._deferred[attempt] = DeferredReports(own + behind, due_at)
            self._sent -= sum(report["attempt"] in attempts for report in list(self._reports)[: self._sent])
            self._reports = deque(report for report in self._reports if report["attempt"] not in attempts)

    def replace_oldest(self, report: Report) -> None:
        """The one exception to "as it was": the control plane cannot read the oldest report."""
        with self._lock:
            self._reports[0] = report

    def withdraw_reports(self, attempt: str) -> bool:
        """Drop what was never sent about `attempt`, or was not stored; True when nothing about it remains here."""
        with self._lock:
            self._deferred.pop(attempt, None)
            reports = list(self._reports)
            sent, unsent = reports[: self._sent], reports[self._sent :]
            self._reports = deque(sent + [report for report in unsent if report["attempt"] != attempt])
            return all(report["attempt"] != attempt for report in sent)
