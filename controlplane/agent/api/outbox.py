"""The queue of reports that the control plane has not answered yet."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter, deque
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from controlplane.agent.api.backoff import full_jitter
from controlplane.agent.limits import BODY_LIMIT

Report = dict[str, Any]

BATCH_COUNT = 400
BATCH_BYTES = 2 * BODY_LIMIT // 3


@dataclass
class DeferredReports:
    """Reports of one attempt, starting with one that the control plane could not store."""

    reports: list[Report]
    due_at: float  # monotonic


class Outbox:
    """A queue of reports in the order of their events. A retry sends a report unchanged. Thread safe.

    A report that the control plane could not store is deferred, with all later reports of its attempt. Reports of other
    attempts do not wait for it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._added_at: float | None = None  # monotonic time since when the oldest unsent report waits
        self._reports: deque[Report] = deque()
        self._sent = 0  # number of reports at the head that were sent at least once
        self._deferred: dict[str, DeferredReports] = {}
        self._failures: Counter[str] = Counter()  # failures in a row, by attempt

    def __len__(self) -> int:
        return len(self._reports) + sum(len(deferred.reports) for deferred in list(self._deferred.values()))

    def count_due(self) -> int:
        """Return how many reports may be sent now."""
        with self._lock:
            deferred = [one for one in self._deferred.values() if one.due_at <= time.monotonic()]
            return len(self._reports) + sum(len(one.reports) for one in deferred)

    def unanswered_reports(self) -> list[Report]:
        """Return all reports, including deferred ones."""
        with self._lock:
            return [*self._reports, *(report for deferred in self._deferred.values() for report in deferred.reports)]

    def add_reports(self, *reports: Report) -> None:
        """Add reports. Reports that are added together are sent in one request if they fit."""
        with self._lock:
            for report in reports:
                deferred = self._deferred.get(report["attempt"])
                if not deferred and (self._added_at is None or len(self._reports) == self._sent):
                    self._added_at = time.monotonic()  # it is the first unsent one
                (deferred.reports if deferred else self._reports).append(report)

    def next_retry_at(self) -> float | None:
        """Return the time (monotonic) at which the first deferred report is due, or None."""
        with self._lock:
            return min((deferred.due_at for deferred in self._deferred.values()), default=None)

    def oldest_reports(self, count: int = BATCH_COUNT) -> list[Report]:
        """Return the oldest reports that fit one request. They stay in the queue until `record_answer`."""
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
            self._added_at = None
            return taken

    def company_due_at(self, patience: float) -> float:
        """Return until when (monotonic) the oldest unsent report may wait for others. A full call need not wait."""
        with self._lock:
            is_free = self._added_at is None or self._sent or len(self._reports) >= BATCH_COUNT // 2
            return float("-inf") if is_free or self._added_at is None else self._added_at + patience

    def record_answer(self, count: int, unstored: Collection[int] = (), cap: float = 0.0) -> None:
        """Remove the oldest `count` reports, because they were answered.

        Reports at the positions in `unstored` are sent again, after a pause of at most `cap` seconds.
        """
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
        """Replace the oldest report, because the control plane cannot read it. This is the only change to a report."""
        with self._lock:
            self._reports[0] = report

    def withdraw_reports(self, attempt: str) -> bool:
        """Remove the reports of an attempt that were never sent or not stored. Return True if none are left."""
        with self._lock:
            self._deferred.pop(attempt, None)
            reports = list(self._reports)
            sent, unsent = reports[: self._sent], reports[self._sent :]
            self._reports = deque(sent + [report for report in unsent if report["attempt"] != attempt])
            return all(report["attempt"] != attempt for report in sent)
