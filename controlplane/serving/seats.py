"""Who gets a thread, when there are more calls than threads.

A call first enters the room, then its body is read, then it takes a seat, which is a thread. What it holds at each
place is counted, by its lane and by its key; nothing here waits for the network or the database.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import NamedTuple

from controlplane.core.problems import Problem
from liveness.services.tokens import ServerToken

WAIT = 2.0
"""Seconds that a call waits for a seat."""
ROOM = 128
"""Calls of the outside that are in the room at once, with their bodies; half as many may be of strangers."""
ROOM_OF_SERVERS = 1024
ROOM_OF_ONE = 32
"""Calls of one key that are in the room at once."""
OF_ONE_SERVER = 2
"""Its heartbeat, and its claim or report."""


class Lane(IntEnum):
    """What a call is; of those that wait the lowest goes first."""

    HEARTBEAT_OR_REPORT = 0
    CLAIM = 1
    PROBE_OR_SIGN_IN = 2
    GENERAL = 3


class Call(NamedTuple):
    lane: Lane
    key: str
    """Whose it is: the server, the token or session, or the address of a stranger."""
    is_strange: bool = False
    """Nobody knows whether its token, if it has one, is worth anything."""
    token: ServerToken | None = None
    """Of the server that makes this call of its own."""


class TooManyCalls(Problem):
    """Too many of your calls are under way at once; others need their share. Try again."""

    status = 429
    code = "too_many_calls"


class Overloaded(Problem):
    """The control plane has more to do than it can just now; nothing was changed. Try again."""

    status = 503
    code = "overloaded"


class Seats:
    """`number` seats, 3 or more. Calls of the outside take all but two of them, one key no more than half of those;
    probes and signing in one each, so that one is always left for servers; and servers leave one for the others.

    Whoever waits is served by lane, and inside a lane each key in its turn.
    """

    def __init__(self, number: int) -> None:
        general = number - 2
        self._limits = {"all": number, "servers": number - 1, "outside": number - 1, "general": general}
        self._of_one = {
            Lane.HEARTBEAT_OR_REPORT: OF_ONE_SERVER,
            Lane.CLAIM: OF_ONE_SERVER,
            Lane.PROBE_OR_SIGN_IN: 1,
            Lane.GENERAL: (general + 1) // 2,
        }
        self._room = {"servers": ROOM_OF_SERVERS, "outside": ROOM, "strangers": ROOM // 2}
        self._taken: Counter[str] = Counter()
        self._taken_by: Counter[str] = Counter()
        self._inside: Counter[str] = Counter()
        self._inside_of: Counter[str] = Counter()
        self._waiting: dict[Lane, dict[str, deque[asyncio.Future[None]]]] = {lane: {} for lane in Lane}

    @contextmanager
    def room(self, call: Call) -> Iterator[None]:
        """In the room. Raises TooManyCalls and Overloaded at once."""
        names = ("servers",) if is_of_server(call) else ("outside", "strangers") if call.is_strange else ("outside",)
        if self._inside_of[call.key] >= ROOM_OF_ONE:
            raise TooManyCalls
        if any(self._inside[name] >= self._room[name] for name in names):
            raise Overloaded
        for name in names:
            self._inside[name] += 1
        self._inside_of[call.key] += 1
        try:
            yield
        finally:
            for name in names:
                self._inside[name] -= 1
            give_back(self._inside_of, call.key)

    async def take(self, call: Call, gone: Callable[[], Awaitable[None]]) -> bool:
        """A seat, to be given back with `leave`. False: its caller is `gone`. Raises TooManyCalls and Overloaded."""
        if not self._waiting[call.lane] and self._has_seat(call):
            self._sit(call)
            return True
        seat: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[call.lane].setdefault(call.key, deque()).append(seat)
        self._hand_out()  # those who wait already may have had their share
        if seat.done():
            return True
        leaves = asyncio.ensure_future(gone())
        try:
            await asyncio.wait([seat, leaves], timeout=WAIT, return_when=asyncio.FIRST_COMPLETED)
            if seat.done():
                return True
            if leaves.done():
                return False
            raise TooManyCalls if self._taken_by[call.key] >= self._of_one[call.lane] else Overloaded
        except asyncio.CancelledError:
            if seat.done():
                self.leave(call)
            raise
        finally:
            leaves.cancel()
            if not seat.done():
                self._stop_waiting(call, seat)

    def leave(self, call: Call) -> None:
        self._taken.subtract(limits_of(call))
        give_back(self._taken_by, call.key)
        self._hand_out()

    def _has_seat(self, call: Call) -> bool:
        return self._taken_by[call.key] < self._of_one[call.lane] and all(
            self._taken[name] < self._limits[name] for name in limits_of(call)
        )

    def _sit(self, call: Call) -> None:
        self._taken.update(limits_of(call))
        self._taken_by[call.key] += 1

    def _hand_out(self) -> None:
        """Seats that are free, to those who wait."""
        for lane in Lane:
            while next_one := next((key for key in self._waiting[lane] if self._has_seat(Call(lane, key))), None):
                call = Call(lane, next_one)
                seat = self._waiting[lane][next_one][0]
                self._stop_waiting(call, seat)
                if next_one in self._waiting[lane]:  # its next turn is after the others
                    self._waiting[lane][next_one] = self._waiting[lane].pop(next_one)
                self._sit(call)
                seat.set_result(None)

    def _stop_waiting(self, call: Call, seat: asyncio.Future[None]) -> None:
        queue = self._waiting[call.lane][call.key]
        queue.remove(seat)
        if not queue:
            del self._waiting[call.lane][call.key]


def is_of_server(call: Call) -> bool:
    return call.lane in (Lane.HEARTBEAT_OR_REPORT, Lane.CLAIM)


def limits_of(call: Call) -> tuple[str, ...]:
    if is_of_server(call):
        return ("all", "servers")
    return ("all", "outside", "general") if call.lane == Lane.GENERAL else ("all", "outside")


def give_back(counts: Counter[str], key: str) -> None:
    counts[key] -= 1
    if counts[key] <= 0:
        del counts[key]
