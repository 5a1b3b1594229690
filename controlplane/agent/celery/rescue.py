"""Which instances are lost, and when what they hold may go back: never before all of their code must have stopped."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import structlog

from controlplane.agent.celery import keys
from controlplane.agent.celery.holdings import Holdings
from controlplane.agent.celery.restoring import Loss, Outcome
from controlplane.agent.fence import read_uptime

log = structlog.get_logger()
ASKED = 200  # holders that one heartbeat asks for, others each time


class Rescue:
    """The verdict comes from the control plane (`hear`, in any thread); the rest is done in one thread (`turn`)."""

    def __init__(
        self,
        instance: str,
        holdings: Holdings,
        condemned_for: float,
        limit: int,
        clock: Callable[[], float] = read_uptime,
    ) -> None:
        self._instance, self._holdings, self._limit, self._clock = instance, holdings, limit, clock
        self._condemned_for = condemned_for
        self._lock = threading.Lock()
        self._forsaken: frozenset[str] = frozenset()
        self._unknown_since: dict[str, float] = {}
        self._unknown_for = float("inf")
        self._marked_at: dict[str, float] = {}
        self._asked: set[str] | None = None  # None: for all
        self._to_send: list[str] = []
        self.holders: list[str] = []  # as of the last turn, without ourselves

    def ask(self) -> list[str]:
        """The holders that the next heartbeat asks for."""
        holders = self.holders
        asked = holders if len(holders) <= ASKED else random.sample(holders, ASKED)
        with self._lock:
            self._asked = set(asked)
        return asked

    def hear(self, answer: dict[str, Any], unknown_for: float) -> None:
        """`unknown_for`: seconds after which an instance that never registered is as good as lost."""
        if "forsaken" not in answer and "unknown" not in answer:
            return
        with self._lock:
            # Of those that were not asked for this time, what was heard before holds.
            before = set() if self._asked is None else (self._forsaken | {*self._unknown_since}) - self._asked
            self._forsaken = (self._forsaken & before) | set(map(str, answer.get("forsaken") or ()))
            unknown = (before & {*self._unknown_since}) | set(map(str, answer.get("unknown") or ()))
            self._unknown_since = {id: self._unknown_since.get(id, self._clock()) for id in unknown}
            self._unknown_for = unknown_for
            self._to_send = list(map(str, answer.get("send") or ()))

    def to_send(self) -> list[str]:
        """Tasks that somebody wants sent out of quarantine."""
        with self._lock:
            tasks, self._to_send = self._to_send, []
            return tasks

    def unheard(self) -> None:
        """An outage: nobody is unknown for having been unheard."""
        with self._lock:
            self._unknown_since = {}

    def lost(self) -> set[str]:
        with self._lock:
            now = self._clock()
            unknown = {id for id, since in self._unknown_since.items() if now - since >= self._unknown_for}
            return (set(self._forsaken) | unknown) - {self._instance}

    def run_once(self) -> Counter[Outcome]:
        """Everything that is due; raises the errors of the broker."""
        self._holdings.enter(self._instance)  # a Redis that was restarted may have forgotten it
        holders = [holder for holder in self._holdings.holders() if holder != self._instance]
        lost, outcomes = self.lost(), Counter[Outcome]()
        self._marked_at = {id: at for id, at in self._marked_at.items() if id in lost}
        with self._lock:  # of who holds nothing any more nothing needs to be known
            self._forsaken &= set(holders)
            self._unknown_since = {id: at for id, at in self._unknown_since.items() if id in holders}
        for holder in holders:
            if holder in lost:
                outcomes += self._take_from(holder)
        self.holders = holders
        return outcomes

    def waiting(self) -> bool:
        """Something is marked and not yet due."""
        now = self._clock()
        return any(now - at < self._condemned_for for at in self._marked_at.values())

    def _take_from(self, holder: str) -> Counter[Outcome]:
        marked_for = self._holdings.condemn(holder, self._instance)
        # Our own clock from our own first look, and the mark's age: it may have been lost with a Redis meanwhile.
        seen = self._marked_at.setdefault(holder, self._clock())
        if marked_for < self._condemned_for or self._clock() - seen < self._condemned_for:
            return Counter()
        loss = Loss(holder, "its worker was lost", self._limit)
        outcomes = self._holdings.give_back_all(holder, loss, None)
        if outcomes:
            log.warning("Messages of a lost worker given back", instance=holder, **count_by_outcome(outcomes))
        if marked_for > keys.HOLDER_KEPT:
            self._holdings.leave(holder)
        return outcomes


def count_by_outcome(outcomes: Counter[Outcome]) -> dict[str, int]:
    return {outcome.name.lower(): count for outcome, count in outcomes.items() if outcome is not Outcome.GONE}
