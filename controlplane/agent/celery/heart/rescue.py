"""Rescue of lost workers' messages.

They return to their queues only when all code of the lost worker must have stopped.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any, Protocol

import structlog

from controlplane.agent.celery.broker import keys
from controlplane.agent.celery.broker.restoring import Loss, Outcome
from controlplane.agent.fence import read_uptime

log = structlog.get_logger()
ASKED = 200  # largest number of holders in one heartbeat; if there are more, each heartbeat has a random sample


class HeldMessages(Protocol):
    """Interface of the messages that instances hold in the broker. Every method raises the broker's errors."""

    def enter(self, instance: str) -> None: ...
    def leave(self, instance: str) -> bool: ...
    def holders(self) -> list[str]: ...
    def condemn(self, instance: str, by: str) -> float: ...
    def give_back_all(self, instance: str, loss: Loss, running: Collection[str] | None) -> Counter[Outcome]: ...


class Rescue:
    """Rescue by one heart. Any thread may call `record_answer`; a single thread calls all other methods."""

    def __init__(
        self,
        instance: str,
        held: HeldMessages,
        condemned_for: float,
        limit: int,
        clock: Callable[[], float] = read_uptime,
    ) -> None:
        self._instance, self._held, self._limit, self._clock = instance, held, limit, clock
        self._condemned_for = condemned_for
        self._lock = threading.Lock()
        self._forsaken: frozenset[str] = frozenset()
        self._unknown_since: dict[str, float] = {}
        self._unknown_for = float("inf")
        self._marked_at: dict[str, float] = {}
        self._ended: set[str] = set()
        self._asked: set[str] | None = None  # None before the first query
        self._to_send: list[str] = []
        self.holders: list[str] = []  # holders in the latest run, without this worker

    def ask(self) -> list[str]:
        """Return the holders for the next heartbeat."""
        holders = self.holders
        asked = holders if len(holders) <= ASKED else random.sample(holders, ASKED)
        with self._lock:
            self._asked = set(asked)
        return asked

    def record_answer(self, answer: dict[str, Any], unknown_for: float) -> None:
        """Record the lost holders.

        `unknown_for` is the number of seconds after which an instance that never registered counts as lost.
        """
        if "forsaken" not in answer and "unknown" not in answer:
            return
        with self._lock:
            # The earlier answer stays valid for holders that this query did not contain.
            before = set() if self._asked is None else (self._forsaken | {*self._unknown_since}) - self._asked
            self._forsaken = (self._forsaken & before) | set(map(str, answer.get("forsaken") or ()))
            unknown = (before & {*self._unknown_since}) | set(map(str, answer.get("unknown") or ()))
            self._unknown_since = {id: self._unknown_since.get(id, self._clock()) for id in unknown}
            self._unknown_for = unknown_for
            self._to_send = list(map(str, answer.get("send") or ()))

    def to_send(self) -> list[str]:
        """Return the tasks to send out of quarantine. Each is returned once."""
        with self._lock:
            tasks, self._to_send = self._to_send, []
            return tasks

    def forget_unknown(self) -> None:
        """Forget since when instances are unknown, because the control plane did not answer."""
        with self._lock:
            self._unknown_since = {}

    def record_end(self, instance: str) -> None:
        """Record a proof that nothing of an instance runs any more, so that its messages return without a mark."""
        with self._lock:
            self._ended.add(instance)

    def lost(self) -> set[str]:
        """Return the instances whose messages may be returned once they are marked."""
        with self._lock:
            now = self._clock()
            unknown = {id for id, since in self._unknown_since.items() if now - since >= self._unknown_for}
            return (set(self._forsaken) | unknown) - {self._instance}

    def run_once(self) -> Counter[Outcome]:
        """Mark lost holders, and return messages of holders that were marked long enough ago.

        Raise the broker's errors.
        """
        self._held.enter(self._instance)  # enter again, because a restarted Redis may have lost the entry
        holders = [holder for holder in self._held.holders() if holder != self._instance]
        lost, outcomes = self.lost(), Counter[Outcome]()
        self._marked_at = {id: at for id, at in self._marked_at.items() if id in lost}
        with self._lock:  # forget instances that no longer hold anything
            ended = set(self._ended)
            self._forsaken &= set(holders)
            self._unknown_since = {id: at for id, at in self._unknown_since.items() if id in holders}
        for holder in holders:
            if holder in ended:
                outcomes += self._give_back(holder)
                self._held.leave(holder)
            elif holder in lost:
                outcomes += self._take_from(holder)
        with self._lock:
            self._ended -= ended
        self.holders = holders
        return outcomes

    def waiting(self) -> bool:
        """Return True if messages still wait for their return, after a proved end or a recent mark."""
        now = self._clock()
        return bool(self._ended) or any(now - at < self._condemned_for for at in self._marked_at.values())

    def _take_from(self, holder: str) -> Counter[Outcome]:
        marked_for = self._held.condemn(holder, self._instance)
        # Both the mark's age and this process's own time must have passed, because Redis may have lost the mark.
        seen = self._marked_at.setdefault(holder, self._clock())
        if marked_for < self._condemned_for or self._clock() - seen < self._condemned_for:
            return Counter()
        outcomes = self._give_back(holder)
        if marked_for > keys.HOLDER_KEPT:
            self._held.leave(holder)
        return outcomes

    def _give_back(self, holder: str) -> Counter[Outcome]:
        loss = Loss(holder, "its worker was lost", self._limit)
        outcomes = self._held.give_back_all(holder, loss, None)
        if outcomes:
            log.warning(
                "Messages of a lost worker returned to their queues", instance=holder, **count_by_outcome(outcomes)
            )
        return outcomes


def count_by_outcome(outcomes: Counter[Outcome]) -> dict[str, int]:
    return {outcome.name.lower(): count for outcome, count in outcomes.items() if outcome is not Outcome.GONE}
