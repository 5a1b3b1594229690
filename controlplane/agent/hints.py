"""The thread that waits for a hint that there is work, in a call that the control plane keeps back.

It claims nothing, so that losing it, or a control plane that gives no hints, costs time and never work: then claims are
made every `--poll` seconds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import structlog

from controlplane.agent.backoff import full_jitter
from controlplane.agent.client import Refused, Unreachable
from controlplane.agent.registration import RegisteredServer

log = structlog.get_logger()

WAIT = 50.0  # seconds; proxies often cut after 60
KEPT = 2.0  # seconds after which an answer that has not come is being kept back
REFUSED_PAUSE = 300.0  # seconds until it is tried again, where it is refused
NOT_KEPT_PAUSE = 1.0  # seconds, at first, where it is answered at once: by a process that ends, or has no room
CLAIMED_WITHIN = 10.0  # seconds that a hint waits for the claim that it led to
VAIN_PAUSE, LONGEST_VAIN_PAUSE = 0.1, 30.0  # seconds, after hints whose claims bring nothing


class HintThread(threading.Thread):
    """Both callbacks are called in this thread: `hint` when there may be work, with the number of jobs to claim,
    `changed` when claims are to be made more or less often."""

    def __init__(self, server: RegisteredServer, hint: Callable[[int], None], changed: Callable[[], None]) -> None:
        super().__init__(name="hints", daemon=True)
        self._server, self._hint, self._changed = server, hint, changed
        self._wanted, self._closing, self._claimed = threading.Event(), threading.Event(), threading.Event()
        self._asked_at: float | None = None  # monotonic; of the call under way
        self._are_kept_back: bool | None = None  # None: not known yet
        self._failures = self._answers_not_kept = self._claims_in_vain = 0

    @property
    def are_kept_back(self) -> bool:
        """Whether a hint will come when there is work."""
        if self._are_kept_back is None:
            asked_at = self._asked_at
            return asked_at is not None and time.monotonic() - asked_at >= KEPT
        return self._are_kept_back

    def set_wanted(self, wanted: bool) -> None:
        """Whether there is room for work."""
        if wanted:
            self._wanted.set()
        else:
            self._wanted.clear()

    def record_claim(self, attempts: int, *, is_more_wanted: bool) -> None:
        """A claim has ended: the next hint may come."""
        self.set_wanted(is_more_wanted)
        self._claims_in_vain = 0 if attempts else self._claims_in_vain + 1
        self._claimed.set()

    def close(self) -> None:
        self._closing.set()
        self._wanted.set()
        self._claimed.set()

    def run(self) -> None:
        while not self._closing.is_set():
            self._wanted.wait()
            if not self._closing.is_set():
                self._closing.wait(self.wait_once())

    def wait_once(self) -> float:
        """Wait for a hint and for the claim it leads to; the seconds until the next."""
        self._claimed.clear()
        self._asked_at = asked_at = time.monotonic()
        try:
            jobs = self._server.wait_for_hint(WAIT)
        except Refused as refused:
            log.debug("No hints", code=refused.code, detail=refused.detail)
            self._record_answer(False)
            return REFUSED_PAUSE
        except Unreachable as error:
            self._failures += 1
            log.debug("No hint", why=str(error))
            self._record_answer(False)
            return (error.retry_after or 0) + full_jitter(self._failures, self._server.config.timeout / 4)
        finally:
            self._asked_at = None
        self._failures = 0
        if not jobs:
            self._record_answer(time.monotonic() - asked_at >= KEPT)
            if self._are_kept_back:
                self._answers_not_kept = 0
                return 0.0
            self._answers_not_kept += 1
            return full_jitter(self._answers_not_kept, REFUSED_PAUSE, NOT_KEPT_PAUSE)
        self._hint(jobs)
        self._claimed.wait(CLAIMED_WITHIN)
        if not self._claims_in_vain:
            return 0.0
        # Another was quicker; or this is no work that we may have, and claiming it over and over helps nobody.
        return min(LONGEST_VAIN_PAUSE, VAIN_PAUSE * 2.0 ** min(self._claims_in_vain - 1, 20))

    def _record_answer(self, was_kept_back: bool) -> None:
        was, self._are_kept_back = self._are_kept_back, was_kept_back
        if was is not was_kept_back:
            self._changed()
