"""The attempts that a worker holds, by the stage that they have reached. Main thread only, except `list_all`."""

from __future__ import annotations

from collections.abc import Iterable

from controlplane.agent.attempt import AttemptStage, HeldAttempt


class AttemptTable:
    """Attempts from their claim until the answer to their last report.

    `waiting` are STARTING. `begun` are RUNNING or KILLED. The others have ENDED.
    """

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.waiting: dict[str, HeldAttempt] = {}
        self.begun: dict[str, HeldAttempt] = {}
        self._held: dict[str, HeldAttempt] = {}

    def __contains__(self, id: str) -> bool:
        return id in self._held

    def __getitem__(self, id: str) -> HeldAttempt:
        return self._held[id]

    def find(self, id: str) -> HeldAttempt | None:
        return self._held.get(id)

    def list_all(self) -> list[HeldAttempt]:
        """Return all attempts. Any thread may call this."""
        return list(self._held.values())

    @property
    def live_count(self) -> int:
        return len(self.waiting) + len(self.begun)

    @property
    def is_full(self) -> bool:
        """Return True if there is code to run in each slot."""
        return len(self.begun) >= self.slots

    def add(self, attempt: HeldAttempt) -> None:
        self._held[attempt.id] = self.waiting[attempt.id] = attempt

    def take_next(self) -> HeldAttempt | None:
        """Return the next attempt whose code may begin, if a slot is free. It waits no more."""
        if self.is_full:
            return None
        attempt = next((one for one in self.waiting.values() if one.is_accepted), None)
        return self.waiting.pop(attempt.id) if attempt else None

    def record_begin(self, attempt: HeldAttempt) -> None:
        if attempt.is_live:
            self.begun[attempt.id] = attempt

    def record_end(self, attempt: HeldAttempt) -> None:
        attempt.stage = AttemptStage.ENDED
        self.waiting.pop(attempt.id, None)
        self.begun.pop(attempt.id, None)

    def remove(self, attempt: HeldAttempt) -> None:
        for attempts in (self._held, self.waiting, self.begun):
            attempts.pop(attempt.id, None)

    def list_claimed_ahead(self) -> list[HeldAttempt]:
        """Return the waiting attempts that have no free slot."""
        return list(self.waiting.values())[max(0, self.slots - len(self.begun)) :]

    def list_running(self) -> list[HeldAttempt]:
        return [attempt for attempt in self.begun.values() if attempt.stage is AttemptStage.RUNNING]

    def list_with_output(self) -> list[HeldAttempt]:
        """Return the attempts whose output may be reported. A lost attempt (KILLED, no report) is not among them."""
        return [
            attempt for attempt in self.begun.values() if attempt.stage is AttemptStage.RUNNING or attempt.final_report
        ]

    def select_live(self, ids: Iterable[str] | None = None) -> list[HeldAttempt]:
        """Return the attempts with these ids that have not ended. None means all."""
        attempts = self.list_all() if ids is None else [self._held[id] for id in ids if id in self._held]
        return [attempt for attempt in attempts if attempt.is_live]
