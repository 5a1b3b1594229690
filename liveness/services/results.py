"""Count the results of heartbeats, for the metric `heartbeats_total{result}`.

Each process counts in memory. Every few seconds one of its heartbeats writes the counts to the table of tallies,
because a row for each heartbeat would cost as much as the heartbeat. The counts of the last seconds of a process are
lost.
"""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import Error

from controlplane.core.database.errors import classify
from controlplane.core.problems import Problem

ACCEPTED, UNAVAILABLE = "accepted", "database_unavailable"
PAUSE = 5
"""Seconds between two heartbeats that write the counts."""


class HeartbeatResults:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counted: Counter[str] = Counter()
        self._taken_at = float("-inf")

    def count(self, result: str, number: int = 1) -> None:
        """Count heartbeats with this result: `accepted`, or the error code of the refusal."""
        with self._lock:
            self._counted[result] += number

    @contextmanager
    def count_answer(self) -> Iterator[None]:
        """Count the result of the heartbeat that the `with` block records."""
        try:
            yield
        except Problem as refusal:
            self.count(refusal.code)
            raise
        except Error as error:
            if classify(error):
                self.count(UNAVAILABLE)
            raise
        self.count(ACCEPTED)

    @contextmanager
    def take_due_counts(self) -> Iterator[dict[str, Any]]:
        """Yield the SQL parameters for the counts that the next heartbeat writes. Mostly there are none.

        If the `with` block fails, a later heartbeat writes them.
        """
        due: Counter[str] = Counter()
        with self._lock:
            if self._counted and time.monotonic() - self._taken_at >= PAUSE:
                due, self._counted, self._taken_at = self._counted, Counter(), time.monotonic()
        try:
            yield {"results": list(due), "counts": list(due.values())}
        except BaseException:
            with self._lock:
                self._counted += due
            raise


results = HeartbeatResults()
