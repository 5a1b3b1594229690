"""Seats: decide which call gets a thread if there are more calls than threads.

A call takes a seat (a thread), or waits in the queue of its kind. Seats and queues are limited by kind and by caller,
so that no caller uses up the seats of others. Nothing here waits for the network or the database.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from enum import IntEnum
from typing import NamedTuple

from controlplane.core.problems import Problem
from liveness.services.tokens import ServerToken

WAIT = 2.0
"""Longest time in seconds that a call waits for a seat."""
QUEUE_OF_ONE = 32
"""Largest number of waiting calls of one kind and one caller."""
OF_ONE_SERVER = 2
"""Largest number of seats of one server: one for its heartbeat, one for its claim or report."""


class CallKind(IntEnum):
    """Kind of a call. Waiting calls of the lowest kind go first."""

    HEARTBEAT_OR_REPORT = 0
    CLAIM = 1
    PROBE = 2
    SIGN_IN = 3
    GENERAL = 4


QUEUES = {"servers": 1024, "PROBE": 64, "SIGN_IN": 64, "known": 128, "strangers": 64}
"""Largest number of waiting calls in each queue."""
GROUPS = {
    CallKind.HEARTBEAT_OR_REPORT: ("all", "servers"),
    CallKind.CLAIM: ("all", "servers"),
    CallKind.PROBE: ("all", "outside", "PROBE"),
    CallKind.SIGN_IN: ("all", "outside", "SIGN_IN"),
    CallKind.GENERAL: ("all", "outside", "GENERAL"),
}
"""Groups of each kind. The kinds of a group share a limit of seats."""


class Call(NamedTuple):
    kind: CallKind
    key: str
    """Key of the caller for limits: a server, a token, a session, or the address of a stranger."""
    is_strange: bool = False
    """True if the caller's token or session is not known yet."""
    token: ServerToken | None = None
    """Token of a server that calls about itself."""

    @property
    def queue(self) -> str:
        if self.kind in (CallKind.HEARTBEAT_OR_REPORT, CallKind.CLAIM):
            return "servers"
        if self.kind != CallKind.GENERAL:
            return self.kind.name
        return "strangers" if self.is_strange else "known"


class Waiting(NamedTuple):
    call: Call
    seat: "asyncio.Future[None]"


class TooManyCalls(Problem):
    """Too many of your calls are in progress at once, and other callers need their share. Try again."""

    status = 429
    code = "too_many_calls"


class Overloaded(Problem):
    """The control plane has more calls than it can answer at the moment. Nothing was changed. Try again."""

    status = 503
    code = "overloaded"


class Seats:
    """Pool of `number` seats, at least 3.

    General calls take all seats except two, and one caller takes at most half of these. Probes take at most one seat
    and sign-ins take at most one, but one seat is always left for servers. Servers leave one seat for all other calls.
    """

    def __init__(self, number: int) -> None:
        general = number - 2
        self._limits = {
            "all": number, "servers": number - 1, "outside": number - 1, "PROBE": 1, "SIGN_IN": 1, "GENERAL": general,
        }  # fmt: skip
        self._of_one = dict.fromkeys(CallKind, 1) | {
            CallKind.HEARTBEAT_OR_REPORT: OF_ONE_SERVER,
            CallKind.CLAIM: OF_ONE_SERVER,
            CallKind.GENERAL: (general + 1) // 2,
        }
        self._taken: Counter[str] = Counter()
        self._taken_by: Counter[str] = Counter()
        self._waiting: dict[CallKind, dict[str, deque[Waiting]]] = {kind: {} for kind in CallKind}
        self._queued: Counter[str] = Counter()

    async def take(self, call: Call, gone: Callable[[], Awaitable[None]]) -> bool:
        """Take a seat and return True. Return False if the client disconnects (`gone`) before a seat is free.

        Give the seat back with `leave`. Raise TooManyCalls or Overloaded.
        """
        if not self._waiting[call.kind] and self._has_seat(call):
            self._sit(call)
            return True
        waiting = self._enqueue(call)
        seat = waiting.seat
        self._hand_out()  # a seat may be free although others wait, because these callers are at their limit
        if seat.done():
            return True
        leaves = asyncio.ensure_future(gone())
        try:
            await asyncio.wait([seat, leaves], timeout=WAIT, return_when=asyncio.FIRST_COMPLETED)
            if seat.done():
                seat.result()
                return True
            if leaves.done():
                return False
            raise TooManyCalls if self._taken_by[call.key] >= self._of_one[call.kind] else Overloaded
        except asyncio.CancelledError:
            if seat.done() and seat.exception() is None:
                self.leave(call)
            raise
        finally:
            leaves.cancel()
            if not seat.done():
                self._dequeue(waiting)

    def leave(self, call: Call) -> None:
        self._taken.subtract(GROUPS[call.kind])
        self._taken_by[call.key] -= 1
        if self._taken_by[call.key] <= 0:
            del self._taken_by[call.key]
        self._hand_out()

    def _enqueue(self, call: Call) -> Waiting:
        """Add the call to its queue. If the queue is full, the caller with the most calls in it loses its last call.

        Raise TooManyCalls or Overloaded.
        """
        own = self._waiting[call.kind].get(call.key, ())
        if len(own) >= QUEUE_OF_ONE:
            raise TooManyCalls
        if self._queued[call.queue] >= QUEUES[call.queue]:
            queues = [
                queue
                for kind in CallKind
                for queue in self._waiting[kind].values()
                if queue[0].call.queue == call.queue
            ]
            longest = max(queues, key=len)
            if len(longest) <= len(own) + 1:
                raise Overloaded
            last = longest[-1]
            self._dequeue(last)
            last.seat.set_exception(TooManyCalls())
        waiting = Waiting(call, asyncio.get_running_loop().create_future())
        self._waiting[call.kind].setdefault(call.key, deque()).append(waiting)
        self._queued[call.queue] += 1
        return waiting

    def _has_seat(self, call: Call) -> bool:
        return self._taken_by[call.key] < self._of_one[call.kind] and all(
            self._taken[group] < self._limits[group] for group in GROUPS[call.kind]
        )

    def _sit(self, call: Call) -> None:
        self._taken.update(GROUPS[call.kind])
        self._taken_by[call.key] += 1

    def _hand_out(self) -> None:
        """Give free seats to waiting calls, by kind. Callers of calls of one kind take turns."""
        for kind in CallKind:
            while queue := next(
                (queue for queue in self._waiting[kind].values() if self._has_seat(queue[0].call)), None
            ):
                waiting = queue[0]
                self._dequeue(waiting)
                if (key := waiting.call.key) in self._waiting[kind]:  # the other callers come first now
                    self._waiting[kind][key] = self._waiting[kind].pop(key)
                self._sit(waiting.call)
                waiting.seat.set_result(None)

    def _dequeue(self, waiting: Waiting) -> None:
        call = waiting.call
        queue = self._waiting[call.kind][call.key]
        queue.remove(waiting)
        self._queued[call.queue] -= 1
        if not queue:
            del self._waiting[call.kind][call.key]
