"""How heartbeats were answered, for `heartbeats_total{result}`.

A process counts its own, and every few seconds one of its beats takes the counts along to the table of tallies: a row
for each beat would cost as much as the beat. What a process counted in its last seconds ends with it.
"""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import InterfaceError, OperationalError

from controlplane.core.problems import Problem

ACCEPTED, UNAVAILABLE = "accepted", "database_unavailable"
PAUSE = 5
"""Seconds between two beats that take counts along."""


class HeartbeatResults:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counted: Counter[str] = Counter()
        self._taken_at = float("-inf")

    def count(self, result: str, number: int = 1) -> None:
        """So many beats were accepted, or refused with this code."""
        with self._lock:
            self._counted[result] += number

    @contextmanager
    def count_answer(self) -> Iterator[None]:
        """Count how the heartbeat is answered that is recorded meanwhile."""
        try:
            yield
        except Problem as refusal:
            self.count(refusal.code)
            raise
        except (OperationalError, InterfaceError):
            self.count(UNAVAILABLE)
            raise
        self.count(ACCEPTED)

    @contextmanager
    def take_due_counts(self) -> Iterator[dict[str, Any]]:
        """The parameters of a beat that takes along what is due, which mostly is nothing. If it fails, another will."""
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
