"""Idle workers that wait for work: each holds a socket, and neither a thread nor the database.

One look at what waits to be claimed serves all of them. It is made when work is announced, when somebody comes for whom
the last one may have found something, and every second; then workers are woken for as many jobs as there are, the least
loaded first: see choice. Each is told its share, so that what is submitted at once does not all go to whoever claims
first.
"""

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple
from uuid import UUID

import structlog
from django.db import DatabaseError, InterfaceError

from controlplane.core.notifications import Listener
from controlplane.core.threads import Threads
from controlplane.serving.answers import JSON, Answer
from controlplane.serving.choice import Choice, Offer
from jobs.services import hints
from jobs.sql.rows.hints import ClaimableJobs, WorkerLoad

log = structlog.get_logger()

LOOK_INTERVAL = 1.0
"""Seconds between two looks of which nobody said that they are worth it: what becomes due is not announced."""
LOOK_PAUSE = 0.005
"""Seconds between two looks: what is announced meanwhile shares the next."""
CLAIMED_WITHIN = 0.25
"""Seconds in which a worker that was woken has claimed: so long nobody else is woken for the same job."""
BETTER_FIRST = 0.1
"""Seconds for which a new job is left to a clearly less loaded worker that may wait at another process."""
COMPARED = 20
"""Workers, more than there are jobs, of which the least loaded are woken: those that have waited longest."""
LISTED = 100
"""Jobs of one set of tags of a namespace that a look finds, however few wait: each may have room for several."""
WAITING, REMEMBERED = 5_000, 20_000
"""Servers that wait at once, and servers whose offers are known."""

NOTHING_YET: tuple[float, list[ClaimableJobs]] = (float("-inf"), [])
"""When the last look began, and what it found."""

Caller = tuple[str | None, ...]
"""The headers by which it is known."""


class Waiter(NamedTuple):
    server: str
    offer: Offer
    woken: "asyncio.Future[int]"  # how many jobs it is to claim; 0: none


class WorkHints:
    def __init__(
        self,
        look: Callable[[int], list[ClaimableJobs]] = hints.list_claimable_jobs,
        read_loads: Callable[[Sequence[UUID]], list[WorkerLoad]] = hints.read_worker_loads,
    ) -> None:
        self._look, self._read_loads, self._threads = look, read_loads, Threads(1, "hints")
        self._offers: OrderedDict[Caller, Offer] = OrderedDict()
        self._waiting: dict[str, Waiter] = {}
        self._seen: dict[UUID, float] = {}  # jobs that wait, and since when that is known
        self._hinted: dict[UUID, tuple[float, str]] = {}  # those for which somebody was woken lately, when, and who
        self._claiming: dict[str, tuple[float, int]] = {}  # who was woken lately and is not back: when, for how many
        self._returned: dict[UUID, Counter[str]] = {}  # who came back without them though woken for them, how often
        self._last_look = NOTHING_YET
        self._wanted = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None
        self._listener: Listener | None = None
        self._is_closed = False

    def offer_of(self, caller: Caller) -> Offer | None:
        """The offer of the server that calls, where it is known. It never changes."""
        return self._offers.get(caller)

    def learn_offer(self, caller: Caller, namespace: str, tags: Iterable[str]) -> Offer:
        self._offers[caller] = known = Offer(namespace, frozenset(tags))
        if len(self._offers) > REMEMBERED:
            self._offers.popitem(last=False)
        return known

    async def wait(self, server: str, offer: Offer, seconds: float, gone: Callable[[], Awaitable[Any]]) -> int | None:
        """How many jobs the worker is to claim, after so many seconds at the latest; None: its caller has gone."""
        if (before := self._waiting.pop(server, None)) is not None and not before.woken.done():
            before.woken.set_result(0)  # its connection was lost: a server waits once
        if self._is_closed or len(self._waiting) >= WAITING:
            return 0
        waiter = Waiter(server, offer, asyncio.get_running_loop().create_future())
        self._waiting[server] = waiter
        # It has claimed what it wanted of that for which it was woken.
        self._claiming.pop(server, None)
        for job in [job for job, hinted in self._hinted.items() if hinted[1] == server]:
            del self._hinted[job]
            self._returned.setdefault(job, Counter())[server] += 1
        self._begin()
        if self._may_have_work(waiter):
            self._wanted.set()
        leaves = asyncio.ensure_future(gone())
        try:
            await asyncio.wait([waiter.woken, leaves], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if waiter.woken.done():
                return waiter.woken.result()
            return None if leaves.done() else 0
        finally:
            leaves.cancel()
            if self._waiting.get(server) is waiter:
                del self._waiting[server]

    def close(self) -> None:
        """Answer all: this process ends."""
        self._is_closed = True
        if self._listener is not None:
            self._listener.close()
        for waiter in list(self._waiting.values()):
            if not waiter.woken.done():
                waiter.woken.set_result(0)

    def _begin(self) -> None:
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look_for_work())
        if self._listener is None or not self._listener.is_alive():
            loop, wanted = asyncio.get_running_loop(), self._wanted
            self._listener = Listener(hints.CHANNEL, lambda: loop.call_soon_threadsafe(wanted.set))
            self._listener.start()

    def _may_have_work(self, waiter: Waiter) -> bool:
        """What came since the last look was announced, so that there is nothing to be seen that it did not see."""
        at, claimable = self._last_look
        return time.monotonic() - at >= LOOK_INTERVAL or any(
            waiter.offer.suits(waiter.server, row) for row in claimable
        )

    async def _look_for_work(self) -> None:
        pause: float | None = None
        while not self._is_closed:
            try:
                async with asyncio.timeout(pause):
                    await self._wanted.wait()
            except TimeoutError:
                pass
            self._wanted.clear()
            self._last_look = NOTHING_YET
            if not self._waiting:
                pause = None
                continue
            pause, began = LOOK_INTERVAL, time.monotonic()
            try:
                self._forget_hints(time.monotonic() - CLAIMED_WITHIN)
                waiting = list(self._waiting.values())
                claimable, loads = await self._threads.run(partial(self._read_work, waiting, self._hinted))
                self._take_note(claimable)
                self._last_look = began, claimable
                if loads is not None or self._hinted:
                    pause = CLAIMED_WITHIN
                if loads and self._wake(claimable, loads):
                    pause = BETTER_FIRST
            except (DatabaseError, InterfaceError) as error:
                log.debug("Work is not seen", why=str(error).strip())
                await asyncio.sleep(LOOK_INTERVAL)
            await asyncio.sleep(LOOK_PAUSE)

    def _read_work(
        self, waiting: Sequence[Waiter], hinted: Collection[UUID]
    ) -> tuple[list[ClaimableJobs], list[WorkerLoad] | None]:
        """In another thread: the jobs that wait, and the loads of whoever may be woken for those for which nobody was
        woken lately; None: of nobody."""
        claimable = self._look(max(len(waiting), LISTED))
        compared: dict[UUID, None] = {}
        for row in claimable:
            if jobs := sum(job not in hinted for job in row.jobs):
                suited = (UUID(one.server) for one in waiting if one.offer.suits(one.server, row))
                compared.update(dict.fromkeys(islice(suited, COMPARED + jobs)))
        return claimable, self._read_loads(list(compared)) if compared else None

    def _forget_hints(self, before: float) -> None:
        self._hinted = {job: (at, server) for job, (at, server) in self._hinted.items() if at > before}
        self._claiming = {server: (at, jobs) for server, (at, jobs) in self._claiming.items() if at > before}

    def _take_note(self, claimable: list[ClaimableJobs]) -> None:
        now = time.monotonic()
        self._seen = {job: self._seen.get(job, now) for row in claimable for job in row.jobs}
        self._hinted = {job: hinted for job, hinted in self._hinted.items() if job in self._seen}
        self._returned = {job: servers for job, servers in self._returned.items() if job in self._seen}
        self._exchange_hints()

    def _exchange_hints(self) -> None:
        """A claim takes the first jobs, whoever was woken for them: who is back without its own may have had those of
        one who still claims, and will have these."""
        waits_for = Counter(server for _, server in self._hinted.values())
        others = [
            (at, server) for server, (at, jobs) in self._claiming.items() for _ in range(jobs - waits_for[server])
        ]
        self._hinted.update(zip(self._returned.keys() - self._hinted.keys(), others, strict=False))

    def _wake(self, claimable: list[ClaimableJobs], loads: list[WorkerLoad]) -> bool:
        """Wake the least loaded for the jobs for which nobody was woken lately; whether one is left to others first."""
        now = time.monotonic()
        choice = Choice(loads, self._waiting)
        is_one_left, shares = False, Counter[str]()
        for row in claimable:
            jobs = [job for job in row.jobs if job not in self._hinted]
            returned: Counter[str] = Counter()
            for job in self._returned.keys() & set(jobs):
                returned |= self._returned[job]
            for job, server in choice.choose(row, jobs, lambda job: now - self._seen[job] < BETTER_FIRST, returned):
                if server is None:
                    is_one_left = True
                    continue
                self._hinted[job] = now, server
                shares[server] += 1
        for server, share in shares.items():
            self._claiming[server] = now, share
            if (waiter := self._waiting.pop(server, None)) is not None and not waiter.woken.done():
                waiter.woken.set_result(share)
        return is_one_left


def hint_answer(jobs: int) -> Answer:
    body = b'{"work":true,"jobs":%d}' % jobs if jobs else b'{"work":false}'
    return Answer(200, JSON, body)
