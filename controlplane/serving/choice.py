"""Choose the idle worker to wake for a job: the least loaded worker, and among equals the one that waited longest.

A web process knows only the workers that wait at it. A clearly less loaded worker may wait at another web process that
sees the same job at the same time. So a new job is left to that worker for a fraction of a second. It is not left
longer, because that worker may not be waiting at all.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from jobs.sql.rows.hints import ClaimableJobs, WorkerLoad

CLEARLY_LESS = 0.25
"""Difference in load above which a worker is clearly less loaded. Load is the used part of a worker's slots."""


class Offer(NamedTuple):
    """Namespace and tags of a server. They decide which jobs it may run."""

    namespace: str
    tags: frozenset[str]

    def suits(self, server: str, jobs: ClaimableJobs) -> bool:
        is_enough = self.namespace == jobs.namespace and self.tags.issuperset(jobs.tags)
        return is_enough and UUID(server) not in jobs.refused_by


class Choice:
    """Choice among workers with these loads.

    `waiting` lists the workers that wait at this process, longest wait first.
    """

    def __init__(self, loads: Sequence[WorkerLoad], waiting: Iterable[str]) -> None:
        self._places = {server: place for place, server in enumerate(waiting)}
        self._workers = {str(row.server): (Offer(row.namespace, frozenset(row.tags)), row.slots) for row in loads}
        self._held = {str(row.server): row.held for row in loads}

    def choose(
        self,
        row: ClaimableJobs,
        jobs: Iterable[UUID],
        is_new: Callable[[UUID], bool],
        returned: Mapping[str, int],
    ) -> Iterator[tuple[UUID, str | None]]:
        """Yield each job with the worker to wake, or with None if the job is left to another process.

        Yield nothing for jobs that no worker here may run. The slots of each yielded job count as load of its worker,
        so the next job may go to another worker. `returned` counts how often each worker was woken for such a job and
        came back without it. Such workers come last. Otherwise a worker that never claims, and so has little load,
        would always be first.
        """
        self._returned, self._needed = returned, row.slots
        suited = [server for server, (offer, _) in self._workers.items() if offer.suits(server, row)]
        here = self._ranked(server for server in suited if server in self._places)
        elsewhere = self._ranked(server for server in suited if server not in self._places)
        for job in jobs:
            if not here:
                return
            is_left = elsewhere and elsewhere[0][0] + CLEARLY_LESS < here[0][0] and is_new(job)
            chosen = self._take_first(elsewhere if is_left else here)
            yield job, None if is_left else chosen

    def _ranked(self, servers: Iterable[str]) -> list[tuple[float, int, str]]:
        ranked = [entry for server in servers if (entry := self._rank(server))]
        heapq.heapify(ranked)
        return ranked

    def _rank(self, server: str) -> tuple[float, int, str] | None:
        held, (_, slots) = self._held[server], self._workers[server]
        load = held / slots + self._returned.get(server, 0)
        return (load, self._places.get(server, 0), server) if held + self._needed <= slots else None

    def _take_first(self, ranked: list[tuple[float, int, str]]) -> str:
        server = ranked[0][2]
        self._held[server] += self._needed
        if entry := self._rank(server):
            heapq.heapreplace(ranked, entry)
        else:
            heapq.heappop(ranked)
        return server
