"""The next claim of a worker: how many jobs it asks for, and when it is due."""

from __future__ import annotations

import threading
import time
import uuid
from typing import Any

AHEAD_PAUSE = 0.1  # seconds until the next claim ahead after one that found few jobs
FEW = 4  # a claim is due when half of `ahead` is held, so less than a quarter of it is few


class ClaimPlan:
    """Thread safe. The transport thread sends one claim at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.slots = self._ahead = 0
        self._no_ahead_before = 0.0  # monotonic
        self._share: int | None = None  # number of jobs that the last hint assigned to this worker
        self.slots_wanted: int | None = None  # the last claim found a job that needs so many slots
        self._slots_then = 0  # free slots at that claim
        self._is_rest_left = False  # the current claim leaves jobs to other workers
        self._request: dict[str, Any] | None = None
        self._last_empty_claim_at = float("-inf")  # monotonic
        self.is_claiming = False
        """A claim is not acknowledged. It may have returned attempts that the worker does not know yet."""

    def want(self, slots: int, ahead: int) -> None:
        """Claim up to `slots` jobs from now on, and `ahead` more. A claim that is under way does not change."""
        with self._lock:
            has_room = self.slots_wanted is not None and slots >= self.slots_wanted and slots > self._slots_then
            if not self.slots or has_room:
                # There were no free slots until now, or too few for a job, so work may be waiting.
                self._last_empty_claim_at, self._share, self.slots_wanted = float("-inf"), None, None
            self.slots, self._ahead = slots, ahead

    def follow_hint(self, jobs: int) -> None:
        """Let a claim be due now, because a hint assigned this number of jobs to this worker."""
        with self._lock:
            self._last_empty_claim_at, self._share = float("-inf"), jobs

    def due_at(self, poll: float) -> float:
        """Return when the next claim is due (monotonic). `poll` is the time between claims that return no job."""
        return self._last_empty_claim_at + poll

    def is_due(self, poll: float) -> bool:
        """Return True if `begin` would return a body."""
        with self._lock:
            return self._request is not None or self._is_due(poll)

    def _is_due(self, poll: float) -> bool:
        now = time.monotonic()
        wants_more = self.slots > 0 and now >= self.due_at(poll)
        # A hint that set a number leaves the other jobs to idle workers.
        may_claim_ahead = self._share is None and now >= self._no_ahead_before
        wants_ahead = self._ahead > 0 and not self.slots and may_claim_ahead
        return not self.is_claiming and (wants_more or wants_ahead)

    def begin(self, poll: float) -> dict[str, Any] | None:
        """Return the body of the claim that is due, or None. After a lost response it is the same body again."""
        with self._lock:
            if self._request is None:
                if not self._is_due(poll):
                    return None
                limit = self.slots if self._share is None else min(self.slots, self._share)
                self._request = {"limit": limit, "request_id": str(uuid.uuid4())}
                if self._ahead and self._share is None:
                    self._request["ahead"] = self._ahead
                self._is_rest_left, self._slots_then = limit < self.slots, self.slots
                self.is_claiming, self._share = True, None
            return self._request

    def end(self, request: dict[str, Any], jobs: int) -> bool:
        """Record the end of a claim with its number of jobs. Return True if the next one waits for a hint.

        Nothing here may fail: a claim that does not end would be the last one.
        """
        self._request = None
        if not request["limit"]:
            if jobs < request.get("ahead", 0) / FEW:
                self._no_ahead_before = time.monotonic() + AHEAD_PAUSE
            return False
        is_enough = jobs < request["limit"] or self._is_rest_left
        if is_enough:
            self._last_empty_claim_at = time.monotonic()
        return is_enough
