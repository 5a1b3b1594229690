"""Let idle workers wait for work. Each waiting worker holds a socket, but no thread and no database connection.

One query (a *look*) finds the claimable jobs for all of them. A look happens when work is announced, when a worker
arrives for which the last look may have found work, and every second. Then as many workers are woken as there are jobs,
the least loaded first (see choice.py). Each response has the number of jobs to claim, so that jobs that were submitted
together do not all go to the first worker that claims.
"""

import asyncio
import time
from collections import OrderedDict
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
from controlplane.serving.choice import Offer
from controlplane.serving.woken import WokenWorkers
from jobs.services import hints, limits
from jobs.sql.rows.hints import ClaimableJobs, WorkerLoad

log = structlog.get_logger()

LOOK_INTERVAL = 1.0
"""Seconds between two looks without an announcement. It finds jobs that became due, because these are not announced."""
LOOK_PAUSE = 0.005
"""Minimum number of seconds between two looks. Announcements in this time share the next look."""
CLAIMED_WITHIN = 0.25
"""Seconds that a woken worker has to claim. Until then no other worker is woken for the same job."""
BETTER_FIRST = 0.1
"""Seconds for which a new job is left to a clearly less loaded worker that may wait at another process."""
COMPARED = 20
"""Number of workers to compare in addition to the number of jobs. The longest waiting workers are compared."""
LISTED = 100
"""Largest number of jobs that a look finds per namespace and set of tags. Each worker may take several jobs."""
WAITING, REMEMBERED = 5_000, 20_000
"""Largest number of servers that wait at once, and of servers whose offers are remembered."""


class LastSearch(NamedTuple):
    """Time of a look, the offers that it served, and the jobs that it found."""

    at: float
    offers: Collection[Offer]
    claimable: list[ClaimableJobs]


NOTHING_YET = LastSearch(float("-inf"), (), [])


class Waiter(NamedTuple):
    server: str
    offer: Offer
    woken: "asyncio.Future[int]"  # number of jobs to claim; 0: none


class WorkHints:
    def __init__(
        self,
        look: Callable[[int, Iterable[Offer]], list[ClaimableJobs]] = limits.list_claimable_jobs,
        read_loads: Callable[[Sequence[UUID]], list[WorkerLoad]] = hints.read_worker_loads,
    ) -> None:
        self._look, self._read_loads, self._threads = look, read_loads, Threads(1, "hints")
        self._offers: OrderedDict[str, tuple[bytes, Offer]] = OrderedDict()
        self._waiting: dict[str, Waiter] = {}
        self._woken = WokenWorkers()
        self._last_look = NOTHING_YET
        self._wanted = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None
        self._listener: Listener | None = None
        self._is_closed = False

    def offer_of(self, server: str, credential: bytes) -> Offer | None:
        """Return the offer of a server if Django has accepted a call with this credential.

        The offer is forgotten when an operator changes the tags of the server. `credential` is a digest, so a server
        uses one small entry, whatever headers it sends.
        """
        known, offer = self._offers.get(server, (b"", None))
        return offer if known == credential else None

    def learn_offer(self, server: str, credential: bytes, namespace: str, tags: Iterable[str]) -> Offer:
        known = Offer(namespace, frozenset(tags))
        self._offers[server] = credential, known
        if len(self._offers) > REMEMBERED:
            self._offers.popitem(last=False)
        return known

    def forget_offer(self, server: str) -> None:
        """Forget the offer of a server whose tags have changed, and answer its call, so that it calls again."""
        self._offers.pop(server, None)
        waiter = self._waiting.get(server)
        if waiter is not None and not waiter.woken.done():
            waiter.woken.set_result(0)

    async def wait(self, server: str, offer: Offer, seconds: float, gone: Callable[[], Awaitable[Any]]) -> int | None:
        """Wait at most `seconds` until there is work. Return how many jobs the worker should claim.

        Return None if the client has disconnected.
        """
        if (before := self._waiting.pop(server, None)) is not None and not before.woken.done():
            before.woken.set_result(0)  # its earlier connection was lost: a server waits only once
        if self._is_closed or len(self._waiting) >= WAITING:
            return 0
        waiter = Waiter(server, offer, asyncio.get_running_loop().create_future())
        self._waiting[server] = waiter
        self._woken.record_return(server)
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
        """Answer all waiting calls, because this process ends."""
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

            def note(content: str) -> None:
                if server := hints.note_announcement(content):
                    loop.call_soon_threadsafe(self.forget_offer, server)
                loop.call_soon_threadsafe(wanted.set)

            self._listener = Listener(hints.CHANNEL, note)
            self._listener.start()

    def _may_have_work(self, waiter: Waiter) -> bool:
        """Return True if a look may find work for this worker.

        New jobs are announced. So a look is useless if the last look is recent, was for this offer and found nothing.
        """
        at, offers, claimable = self._last_look
        return (
            time.monotonic() - at >= LOOK_INTERVAL
            or waiter.offer not in offers
            or any(waiter.offer.suits(waiter.server, row) for row in claimable)
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
                self._woken.forget(time.monotonic() - CLAIMED_WITHIN)
                waiting = list(self._waiting.values())
                offers = {waiter.offer for waiter in waiting}
                read = partial(self._read_work, waiting, offers, self._woken.hinted)
                claimable, loads = await self._threads.run(read)
                self._woken.record_look(claimable)
                self._last_look = LastSearch(began, offers, claimable)
                if loads is not None or self._woken.hinted:
                    pause = CLAIMED_WITHIN
                if loads and self._wake(claimable, loads):
                    pause = BETTER_FIRST
            except (DatabaseError, InterfaceError) as error:
                log.debug("Claimable jobs could not be read", why=str(error).strip())
                await asyncio.sleep(LOOK_INTERVAL)
            await asyncio.sleep(LOOK_PAUSE)

    def _read_work(
        self, waiting: Sequence[Waiter], offers: Collection[Offer], hinted: Collection[UUID]
    ) -> tuple[list[ClaimableJobs], list[WorkerLoad] | None]:
        """Return the claimable jobs, and the loads of the workers that may be woken for them.

        The loads are None if no worker needs to be woken. This runs in another thread.
        """
        claimable = self._look(max(len(waiting), LISTED), offers)
        compared: dict[UUID, None] = {}
        for row in claimable:
            if jobs := sum(job not in hinted for job in row.jobs):
                suited = (UUID(one.server) for one in waiting if one.offer.suits(one.server, row))
                compared.update(dict.fromkeys(islice(suited, COMPARED + jobs)))
        return claimable, self._read_loads(list(compared)) if compared else None

    def _wake(self, claimable: list[ClaimableJobs], loads: list[WorkerLoad]) -> bool:
        """Wake workers for jobs. Return True if a job is left to workers at another process for now."""
        shares, is_one_left = self._woken.choose(claimable, loads, self._waiting, BETTER_FIRST)
        for server, share in shares.items():
            if (waiter := self._waiting.pop(server, None)) is not None and not waiter.woken.done():
                waiter.woken.set_result(share)
        return is_one_left


def hint_answer(jobs: int) -> Answer:
    body = b'{"work":true,"jobs":%d}' % jobs if jobs else b'{"work":false}'
    return Answer(200, JSON, body)
