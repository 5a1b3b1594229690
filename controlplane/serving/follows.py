"""Check the jobs that waiting calls follow, with one query for all calls of this process.

Otherwise Django would check each call each second, which takes a thousand times as much.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import structlog
from django.db import DatabaseError, InterfaceError

from controlplane.core.threads import Threads
from jobs.services.followed_jobs import FollowedJob, list_changed

log = structlog.get_logger()

LOOK_INTERVAL, FIRST_INTERVAL = 0.5, 0.1
"""Seconds between two checks of all calls, and of a new call (for LOOK_INTERVAL) that waits for the end of a job."""
FOLLOWED, FOLLOWED_OF_ONE = 5_000, 1_000
"""Largest number of jobs that are followed at the same time, by all callers and by one."""


class Follower(NamedTuple):
    jobs: Sequence[FollowedJob]
    began: float
    changed: "asyncio.Future[None]"

    def is_due(self, now: float) -> bool:
        """Return True if this call is checked next, although it is not the turn of all calls."""
        return now - self.began < LOOK_INTERVAL and any(job.after is None for job in self.jobs)


class Follows:
    def __init__(self, look: Callable[[Sequence[FollowedJob]], Collection[int]] = list_changed) -> None:
        self._look, self._threads = look, Threads(1, "follows")
        self._followers: set[Follower] = set()
        self._of: Counter[str] = Counter()
        self._looking: asyncio.Task[None] | None = None

    @contextmanager
    def follow(self, key: str, jobs: Sequence[FollowedJob]) -> "Iterator[asyncio.Future[None] | None]":
        """Yield a future that is done once one of the jobs has changed.

        Yield None if this caller, or all callers together, would follow too many jobs, or if there are none.
        """
        if not jobs or self._of.total() + len(jobs) > FOLLOWED or self._of[key] + len(jobs) > FOLLOWED_OF_ONE:
            yield None
            return
        follower = Follower(tuple(jobs), time.monotonic(), asyncio.get_running_loop().create_future())
        self._followers.add(follower)
        self._of[key] += len(jobs)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look_for_changes())
        try:
            yield follower.changed
        finally:
            follower.changed.cancel()
            self._followers.discard(follower)
            self._of[key] -= len(jobs)
            self._of += Counter()  # remove callers that follow nothing

    async def _look_for_changes(self) -> None:
        """Check the followed jobs until no call follows any."""
        looked_at = float("-inf")
        while self._followers:
            await asyncio.sleep(FIRST_INTERVAL)
            now = time.monotonic()
            is_for_all = now - looked_at >= LOOK_INTERVAL
            chosen = [one for one in self._followers if not one.changed.done() and (is_for_all or one.is_due(now))]
            if is_for_all:
                looked_at = now
            if not chosen:
                continue
            jobs = [job for one in chosen for job in one.jobs]
            try:
                places = await self._threads.run(partial(self._look, jobs))
            except (DatabaseError, InterfaceError) as error:
                log.debug("Followed jobs could not be read", why=str(error).strip())
                await asyncio.sleep(LOOK_INTERVAL)
                continue
            owners = [one for one in chosen for _ in one.jobs]
            for place in places:
                if not owners[place].changed.done():
                    owners[place].changed.set_result(None)
