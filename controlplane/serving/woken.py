"""Remember which worker was woken for which job, so that only one worker is woken for each job."""

import time
from collections import Counter
from collections.abc import Iterable
from uuid import UUID

from controlplane.serving.choice import Choice
from jobs.sql.rows.hints import ClaimableJobs, WorkerLoad


class WokenWorkers:
    def __init__(self) -> None:
        self.hinted: dict[UUID, tuple[float, str]] = {}
        """Jobs for which a worker was woken recently, each with the time and the worker."""
        # Waiting jobs, each with the time when a look first found it.
        self._seen: dict[UUID, float] = {}
        # Recently woken workers that have not called again, each with the time and the number of jobs.
        self._claiming: dict[str, tuple[float, int]] = {}
        # By job: how often each worker was woken for it but called again without having claimed it.
        self._returned: dict[UUID, Counter[str]] = {}

    def record_return(self, server: str) -> None:
        """Record that a worker is back: of the jobs that it was woken for, it has claimed those that it wanted."""
        self._claiming.pop(server, None)
        for job in [job for job, hinted in self.hinted.items() if hinted[1] == server]:
            del self.hinted[job]
            self._returned.setdefault(job, Counter())[server] += 1

    def forget(self, before: float) -> None:
        """Forget the workers that were woken before this time (monotonic)."""
        self.hinted = {job: (at, server) for job, (at, server) in self.hinted.items() if at > before}
        self._claiming = {server: (at, jobs) for server, (at, jobs) in self._claiming.items() if at > before}

    def record_look(self, claimable: list[ClaimableJobs]) -> None:
        """Record the jobs that a look found, and forget all others."""
        now = time.monotonic()
        self._seen = {job: self._seen.get(job, now) for row in claimable for job in row.jobs}
        self.hinted = {job: hinted for job, hinted in self.hinted.items() if job in self._seen}
        self._returned = {job: servers for job, servers in self._returned.items() if job in self._seen}
        self._exchange_hints()

    def _exchange_hints(self) -> None:
        """Exchange hints between workers that got each other's jobs.

        A claim takes the first jobs, even if another worker was woken for them. So worker A may have claimed the job of
        worker B, and be back without its own job. If B has not claimed yet, A's job is then assigned to B.
        """
        waits_for = Counter(server for _, server in self.hinted.values())
        others = [
            (at, server) for server, (at, jobs) in self._claiming.items() for _ in range(jobs - waits_for[server])
        ]
        self.hinted.update(zip(self._returned.keys() - self.hinted.keys(), others, strict=False))

    def choose(
        self, claimable: list[ClaimableJobs], loads: list[WorkerLoad], waiting: Iterable[str], new_for: float
    ) -> tuple[Counter[str], bool]:
        """Choose the least loaded workers for jobs without a woken worker, and record them as woken.

        A job is new for `new_for` seconds, and may be left to a worker at another process then. Return the number of
        jobs of each worker, and True if a job is left.
        """
        now = time.monotonic()
        choice = Choice(loads, waiting)
        is_one_left, shares = False, Counter[str]()
        for row in claimable:
            jobs = [job for job in row.jobs if job not in self.hinted]
            returned: Counter[str] = Counter()
            for job in self._returned.keys() & set(jobs):
                returned |= self._returned[job]
            for job, server in choice.choose(row, jobs, lambda job: now - self._seen[job] < new_for, returned):
                if server is None:
                    is_one_left = True
                    continue
                self.hinted[job] = now, server
                shares[server] += 1
        self._claiming.update((server, (now, share)) for server, share in shares.items())
        return shares, is_one_left
