"""Log lines about a control plane that does not answer: one when that begins, one when it ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog

from controlplane.agent.api.client import Refused, Unreachable

log = structlog.get_logger()
GIVEN_UP = 120.0  # seconds without another try, after which a kind of call no longer counts


class Outage:
    """The outage of one control plane, whose calls come from several threads.

    It ends when all kinds of calls are answered again: a control plane that is too busy for reports may still answer
    heartbeats.
    """

    def __init__(self, url: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._url, self._clock, self._lock = url, clock, threading.Lock()
        self._began_at: float | None = None
        self._missed_at: dict[str, float] = {}  # by call, the time of the last try without an answer

    def record_miss(self, call: str, why: str) -> None:
        with self._lock:
            self._missed_at[call] = now = self._clock()
            is_first = self._began_at is None
            if is_first:
                self._began_at = now
        say = log.warning if is_first else log.debug
        say("Control plane unreachable", url=self._url, call=call, why=why)

    def record_answer(self, call: str) -> None:
        with self._lock:
            if self._began_at is None:
                return
            now = self._clock()
            self._missed_at.pop(call, None)
            if any(now - missed_at < GIVEN_UP for missed_at in self._missed_at.values()):
                return
            took, self._began_at = now - self._began_at, None
            self._missed_at.clear()
        log.warning("Control plane answers again", after_seconds=round(took, 1))

    @contextmanager
    def watching(self, call: str) -> Iterator[None]:
        """Record the result of a call in the `with` block. A refusal counts as an answer."""
        try:
            yield
        except Unreachable as error:
            self.record_miss(call, str(error))
            raise
        except Refused:
            self.record_answer(call)
            raise
        self.record_answer(call)
