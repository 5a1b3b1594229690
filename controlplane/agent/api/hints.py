"""The thread that waits for hints that there is work. The control plane holds the call open until there is.

This thread claims nothing. If it fails, or if the control plane gives no hints, claims are made every `--poll` seconds:
that costs time, but loses no work.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import structlog

from controlplane.agent.api.backoff import full_jitter
from controlplane.agent.api.client import Refused, Unreachable
from controlplane.agent.api.registration import RegisteredServer

log = structlog.get_logger()

WAIT = 50.0  # seconds; many proxies end a call after 60
HELD_OPEN_AFTER = 2.0  # seconds after which a call without a response counts as held open
REFUSED_PAUSE = 300.0  # seconds until the next try after a refusal
QUICK_ANSWER_PAUSE = 1.0  # seconds, at first, if the response comes at once: the process ends, or holds too many calls
CLAIMED_WITHIN = 10.0  # seconds to wait for the end of the claim after a hint
MOST_SHORT_PAUSES = 4  # empty claims, after which a pause is about a second
EMPTY_CLAIM_PAUSE, LONGEST_EMPTY_CLAIM_PAUSE = 0.1, 30.0  # seconds, after hints whose claims returned no job


class HintThread(threading.Thread):
    """Wait for hints. This thread calls both callbacks.

    `hint` gets the number of jobs to claim. `changed` is called when claims must be made more or less often.
    """

    def __init__(self, server: RegisteredServer, hint: Callable[[int], None], changed: Callable[[], None]) -> None:
        super().__init__(name="hints", daemon=True)
        self._server, self._hint, self._changed = server, hint, changed
        self._wanted, self._closing, self._claimed = threading.Event(), threading.Event(), threading.Event()
        self._asked_at: float | None = None  # monotonic: start of the current call
        self._are_held_open: bool | None = None  # None until it is known
        self._failures = self._quick_answers = self._empty_claims = 0

    @property
    def are_held_open(self) -> bool:
        """Return True if the control plane holds these calls open, so that a hint comes as soon as there is work."""
        if self._are_held_open is None:
            asked_at = self._asked_at
            return asked_at is not None and time.monotonic() - asked_at >= HELD_OPEN_AFTER
        return self._are_held_open

    def set_wanted(self, wanted: bool) -> None:
        """Wait for hints (True) or stop waiting for them (False), because this worker has no free slots."""
        if wanted:
            self._wanted.set()
        else:
            self._wanted.clear()

    def record_claim(self, attempts: int, *, is_more_wanted: bool, waits_for_slots: bool = False) -> None:
        """Record the end of a claim with its number of attempts, so that the next hint can come.

        If a job waits for more slots, the pause after an empty claim stays short, because another worker may take it.
        """
        self.set_wanted(is_more_wanted)
        empty = self._empty_claims + 1
        self._empty_claims = 0 if attempts else min(empty, MOST_SHORT_PAUSES) if waits_for_slots else empty
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
        """Wait for a hint and for the claim after it. Return the seconds until the next call."""
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
            self._record_answer(time.monotonic() - asked_at >= HELD_OPEN_AFTER)
            if self._are_held_open:
                self._quick_answers = 0
                return 0.0
            self._quick_answers += 1
            return full_jitter(self._quick_answers, REFUSED_PAUSE, QUICK_ANSWER_PAUSE)
        self._hint(jobs)
        self._claimed.wait(CLAIMED_WITHIN)
        if not self._empty_claims:
            return 0.0
        # Another worker was faster, or this worker may not have the work: wait longer after each empty claim.
        return min(LONGEST_EMPTY_CLAIM_PAUSE, EMPTY_CLAIM_PAUSE * 2.0 ** min(self._empty_claims - 1, 20))

    def _record_answer(self, was_held_open: bool) -> None:
        was, self._are_held_open = self._are_held_open, was_held_open
        if was is not was_held_open:
            self._changed()
