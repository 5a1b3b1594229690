"""Seats: decide which call gets a thread if there are more calls than threads.

A call takes a seat (a thread), or waits in the line of its lane. Seats and lines are limited by lane and by caller, so
that no caller uses up the seats of others. Nothing here waits for the network or the database.
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
LINE_OF_ONE = 32
"""Largest number of waiting calls of one caller in a lane."""
OF_ONE_SERVER = 2
"""Largest number of seats of one server: one for its heartbeat, one for its claim or report."""


class Lane(IntEnum):
    """Kinds of calls. Waiting calls of the lowest lane go first."""

    HEARTBEAT_OR_REPORT = 0
    CLAIM = 1
    PROBE = 2
    SIGN_IN = 3
    GENERAL = 4


LINES = {"servers": 1024, "PROBE": 64, "SIGN_IN": 64, "known": 128, "strangers": 64}
"""Largest number of waiting calls in each line."""
GROUPS = {
    Lane.HEARTBEAT_OR_REPORT: ("all", "servers"),
    Lane.CLAIM: ("all", "servers"),
    Lane.PROBE: ("all", "outside", "PROBE"),
    Lane.SIGN_IN: ("all", "outside", "SIGN_IN"),
    Lane.GENERAL: ("all", "outside", "GENERAL"),
}
"""Groups of each lane. The lanes of a group share a limit of seats."""


class Call(NamedTuple):
    lane: Lane
    key: str
    """Key of the caller for limits: a server, a token, a session, or the address of a stranger."""
    is_strange: bool = False
    """True if the caller's token or session is not known yet."""
    token: ServerToken | None = None
    """Token of a server that calls about itself."""

    @property
    def line(self) -> str:
        if self.lane in (Lane.HEARTBEAT_OR_REPORT, Lane.CLAIM):
            return "servers"
        if self.lane != Lane.GENERAL:
            return self.lane.name
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
        self._of_one = dict.fromkeys(Lane, 1) | {
            Lane.HEARTBEAT_OR_REPORT: OF_ONE_SERVER,
            Lane.CLAIM: OF_ONE_SERVER,
            Lane.GENERAL: (general + 1) // 2,
        }
        self._taken: Counter[str] = Counter()
        self._taken_by: Counter[str] = Counter()
        self._waiting: dict[Lane, dict[str, deque[Waiting]]] = {lane: {} for lane in Lane}
        self._in_line: Counter[str] = Counter()

    async def take(self, call: Call, gone: Callable[[], Awaitable[None]]) -> bool:
        """Take a seat and return True. Return False if the client disconnects (`gone`) before a seat is free.

        Give the seat back with `leave`. Raise TooManyCalls or Overloaded.
        """
        if not self._waiting[call.lane] and self._has_seat(call):
            self._sit(call)
            return True
        waiting = self._stand_in_line(call)
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
            raise TooManyCalls if self._taken_by[call.key] >= self._of_one[call.lane] else Overloaded
        except asyncio.CancelledError:
            if seat.done() and seat.exception() is None:
                self.leave(call)
            raise
        finally:
            leaves.cancel()
            if not seat.done():
                self._leave_line(waiting)

    def leave(self, call: Call) -> None:
        self._taken.subtract(GROUPS[call.lane])
        self._taken_by[call.key] -= 1
        if self._taken_by[call.key] <= 0:
            del self._taken_by[call.key]
        self._hand_out()

    def _stand_in_line(self, call: Call) -> Waiting:
        """Add the call to its line. If the line is full, the caller with the most calls in it loses its last call.

        Raise TooManyCalls or Overloaded.
        """
        own = self._waiting[call.lane].get(call.key, ())
        if len(own) >= LINE_OF_ONE:
            raise TooManyCalls
        if self._in_line[call.line] >= LINES[call.line]:
            lines = [line for lane in Lane for line in self._waiting[lane].values() if line[0].call.line == call.line]
            longest = max(lines, key=len)
            if len(longest) <= len(own) + 1:
                raise Overloaded
            last = longest[-1]
            self._leave_line(last)
            last.seat.set_exception(TooManyCalls())
        waiting = Waiting(call, asyncio.get_running_loop().create_future())
        self._waiting[call.lane].setdefault(call.key, deque()).append(waiting)
        self._in_line[call.line] += 1
        return waiting

    def _has_seat(self, call: Call) -> bool:
        return self._taken_by[call.key] < self._of_one[call.lane] and all(
            self._taken[group] < self._limits[group] for group in GROUPS[call.lane]
        )

    def _sit(self, call: Call) -> None:
        self._taken.update(GROUPS[call.lane])
        self._taken_by[call.key] += 1

    def _hand_out(self) -> None:
        """Give free seats to waiting calls, by lane. Inside a lane the callers take turns."""
        for lane in Lane:
            while line := next((line for line in self._waiting[lane].values() if self._has_seat(line[0].call)), None):
                waiting = line[0]
                self._leave_line(waiting)
                if (key := waiting.call.key) in self._waiting[lane]:  # the other callers come first now
                    self._waiting[lane][key] = self._waiting[lane].pop(key)
                self._sit(waiting.call)
                waiting.seat.set_result(None)

    def _leave_line(self, waiting: Waiting) -> None:
        call = waiting.call
        line = self._waiting[call.lane][call.key]
        line.remove(waiting)
        self._in_line[call.line] -= 1
        if not line:
            del self._waiting[call.lane][call.key]
