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
        self._large: dict[str, HeldAttempt] = {}  # those of several slots that have not ended

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
    def live_slots(self) -> int:
        return self.live_count + sum(attempt.slots - 1 for attempt in self._large.values())

    @property
    def begun_slots(self) -> int:
        return len(self.begun) + sum(one.slots - 1 for id, one in self._large.items() if id in self.begun)

    @property
    def is_full(self) -> bool:
        """Return True if there is code to run in each slot."""
        return self.begun_slots >= self.slots

    def add(self, attempt: HeldAttempt) -> None:
        self._held[attempt.id] = self.waiting[attempt.id] = attempt
        if attempt.slots > 1:
            self._large[attempt.id] = attempt

    def take_next(self) -> HeldAttempt | None:
        """Return the next attempt whose code may begin, if its slots are free. It waits no more.

        An attempt that needs more slots waits, and the others wait behind it, so that its slots become free.
        """
        if self.is_full:
            return None
        attempt = next((one for one in self.waiting.values() if one.is_accepted), None)
        if attempt is None or (self.begun and self.begun_slots + attempt.slots > self.slots):
            return None
        return self.waiting.pop(attempt.id)

    def record_begin(self, attempt: HeldAttempt) -> None:
        if attempt.is_live:
            self.begun[attempt.id] = attempt

    def record_end(self, attempt: HeldAttempt) -> None:
        attempt.stage = AttemptStage.ENDED
        for attempts in (self.waiting, self.begun, self._large):
            attempts.pop(attempt.id, None)

    def remove(self, attempt: HeldAttempt) -> None:
        for attempts in (self._held, self.waiting, self.begun, self._large):
            attempts.pop(attempt.id, None)

    def list_claimed_ahead(self) -> list[HeldAttempt]:
        """Return the waiting attempts that have no free slots."""
        waiting, free = list(self.waiting.values()), self.slots - self.begun_slots
        for place, attempt in enumerate(waiting):
            free -= attempt.slots
            if free < 0:
                return waiting[place:]
        return []

    def list_begins(self) -> list[float]:
        """Return the time (monotonic) at which the code in each busy slot began."""
        return [at for one in self.begun.values() if (at := one.begun_at) is not None for _ in range(one.slots)]

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
