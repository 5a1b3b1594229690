"""Which of the workers that wait for work is woken for a job: the least loaded, and of equals who has waited longest.

A process knows who waits at it. One that is clearly less loaded may wait at another process, which sees the same job at
the same moment: a new job is left to it for a fraction of a second, and no longer, for it may as well be asleep.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from jobs.sql.rows.hints import ClaimableJobs, WorkerLoad

CLEARLY_LESS = 0.25
"""Of two workers one is clearly less loaded by more than this part of what it can hold."""


class Offer(NamedTuple):
    """What a server may be given work for."""

    namespace: str
    tags: frozenset[str]

    def suits(self, server: str, jobs: ClaimableJobs) -> bool:
        is_enough = self.namespace == jobs.namespace and self.tags.issuperset(jobs.tags)
        return is_enough and UUID(server) not in jobs.refused_by


class Choice:
    """Among workers of these loads; of them those that are `waiting` here, who has waited longest first."""

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
        """For each job the worker that waits here; None: it is left to another. Nothing of jobs that nobody may have.
        Each job counts as held by its worker, so that the next goes to the least loaded then. Who has `returned`
        without such a job comes last, by how often: else who never claims, and so holds little, would always be first.
        """
        self._returned = returned
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
        return (load, self._places.get(server, 0), server) if held < slots else None

    def _take_first(self, ranked: list[tuple[float, int, str]]) -> str:
        server = ranked[0][2]
        self._held[server] += 1
        if entry := self._rank(server):
            heapq.heapreplace(ranked, entry)
        else:
            heapq.heappop(ranked)
        return server
