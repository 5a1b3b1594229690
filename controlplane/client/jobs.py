"""The calls about jobs."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Unpack, cast

from controlplane.agent.limits import BODY_LIMIT
from controlplane.client.answers import Job, LogLine
from controlplane.client.requests import Action, JobOptions, Reference, dump_json, id_of
from controlplane.client.session import Polls, Refused, Session, StillRunning

SUBMITTED_AT_ONCE = 1000
WAITED_FOR_AT_ONCE = 100
LOG_POLL = 1.0
"""Seconds after which a log that is followed is looked at again."""


class JobCalls(Session):
    def submit(
        self, action: Action, payload: Any = None, *, namespace: str | None = None, **options: Unpack[JobOptions]
    ) -> Job:
        """Submit a job, once however often the call must be tried; the same `key` again answers the same job.

        It is of the namespace of the token, whatever it names: another is refused.
        """
        job = {"key": new_key(), **options, "action": action, **({} if payload is None else {"payload": payload})}
        return cast(Job, self.call("POST", "/jobs", job, query={"namespace": namespace}))

    def submit_many(self, jobs: Iterable[Mapping[str, Any]], *, namespace: str | None = None) -> list[Job]:
        """Submit jobs, each an object with its action, payload and options; what became of them in the same order.

        Up to a thousand, and a body of 1 MiB, all or none are taken. More go in several calls: of one that is refused
        those before stay, and jobs with a `key` of yours may be submitted again.
        """
        batches = in_batches({"key": new_key(), **job} for job in jobs)
        query = {"namespace": namespace}
        return [job for batch in batches for job in self.call("POST", "/jobs", batch, query=query)["items"]]

    def job(self, job: Reference) -> Job:
        """The job as it is now, whole."""
        return cast(Job, self.call("GET", f"/jobs/{id_of(job)}"))

    def jobs(
        self, *, state: str | None = None, kind: str | None = None, key: str | None = None, tag: str | None = None,
        namespace: str | None = None, page: int | None = None,
    ) -> Iterator[Job]:  # fmt: skip
        """Jobs, latest first, `page` at a time as they are asked for."""
        filters = {"state": state, "kind": kind, "key": key, "tag": tag, "namespace": namespace}
        return self.items("/jobs", {**filters, "limit": page})

    def wait(self, job: Reference, timeout: float | None = None) -> Job:
        """The job when it has ended, however. Raises StillRunning after `timeout` seconds."""
        id = id_of(job)
        for wait in Polls(self.long_poll, timeout):
            current = cast(Job, self.call("GET", f"/jobs/{id}", query={"wait": wait}, wait=wait))
            if current["finished_at"] is not None:
                return current
        raise StillRunning(f"Job {id} is {current['state']} after {timeout:g} s", [id])

    def as_ended(self, jobs: Iterable[Reference], timeout: float | None = None) -> Iterator[Job]:
        """Jobs, each when it has ended. Raises StillRunning when some have not `timeout` seconds after the call."""
        waiting = dict.fromkeys(map(id_of, jobs))
        polls = Polls(self.long_poll, timeout)
        return self._as_ended(waiting, polls, timeout)

    def _as_ended(self, waiting: dict[str, None], polls: Polls, timeout: float | None) -> Iterator[Job]:
        for wait in polls:
            ids = list(waiting)
            for start in range(0, len(ids), WAITED_FOR_AT_ONCE):
                some = ids[start : start + WAITED_FOR_AT_ONCE]
                # Of many only the last are waited for, and not for long, for others may end meanwhile.
                last, only = start + len(some) == len(ids), len(some) == len(ids)
                kept = wait if only else min(wait, LOG_POLL) if last and not polls.progress else 0.0
                answer = self.call("GET", "/jobs/wait", query={"id": some, "wait": kept}, wait=kept)
                if answer["unknown"]:
                    raise Refused(
                        404,
                        "not_found",
                        f"There are no jobs with these ids, or they are not yours: {', '.join(answer['unknown'])}",
                    )
                polls.progress = polls.progress or bool(answer["items"])
                for job in answer["items"]:
                    del waiting[job["id"]]
                    yield self.job(job) if job["left_out"] else job
            if not waiting:
                return
        which = "1 job has" if len(waiting) == 1 else f"{len(waiting)} jobs have"
        raise StillRunning(f"{which} not ended after {timeout:g} s", list(waiting))

    def wait_any(self, jobs: Iterable[Reference], timeout: float | None = None) -> Job:
        """The first of the jobs to end. Raises StillRunning after `timeout` seconds."""
        for job in self.as_ended(jobs, timeout):
            return job
        raise ValueError("No jobs to wait for")

    def cancel(self, job: Reference, note: str = "") -> Job:
        """Cancel a waiting job now, and ask the worker of a live one to: wait for it to see."""
        return cast(Job, self._end(f"/jobs/{id_of(job)}", "cancel", {"note": note}, "job_ended", "CANCELLED"))

    def resubmit(self, job: Reference, note: str = "", *, force: bool = False) -> Job:
        """Take a live job from its worker, or submit one that ended without success anew: the job to look at now."""
        body = {"note": note} | ({"force": True} if force else {})
        return cast(Job, self.call("POST", f"/jobs/{id_of(job)}/resubmit", body, key=new_key()))

    def fail(self, job: Reference, reason: str = "", note: str = "") -> Job:
        """Fail a job that waits or is live, for good."""
        body = {"reason": reason, "note": note}
        return cast(Job, self._end(f"/jobs/{id_of(job)}", "fail", body, "job_ended", "FAILED"))

    def placement(self, job: Reference) -> dict[str, Any]:
        """Who may have a waiting job, and what rules out every other worker."""
        return self.call("GET", f"/jobs/{id_of(job)}/placement")

    def logs(self, job: Reference, *, follow: bool = False, attempt: int | None = None) -> Iterator[LogLine]:
        """What the job's code has written, oldest first; with `follow` until the job has ended."""
        id = id_of(job)
        cursor, polls = "0", Polls(LOG_POLL)
        wait = 0.0
        for asked in polls:
            # Whether it has ended is looked at first: what it wrote until then is read after.
            ended = not follow or self.call("GET", "/jobs/wait", query={"id": id, "wait": wait}, wait=wait)["items"]
            for page in self._log_pages(f"/jobs/{id}/logs", cursor, attempt):
                yield from page["items"]
                polls.progress = polls.progress or bool(page["items"])
                cursor = page["last"]
            if ended:
                return
            wait = asked

    def _log_pages(self, path: str, cursor: str | None, attempt: int | None = None) -> Iterator[dict[str, Any]]:
        while cursor is not None:
            page = self.call("GET", path, query={"cursor": cursor, "attempt": attempt})
            yield page
            cursor = page["next"]


def new_key() -> str:
    """By which the same call is known again."""
    return str(uuid.uuid4())


def in_batches(jobs: Iterable[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    """As many in each as one call may have."""
    batch: list[Mapping[str, Any]] = []
    size = 2
    for job in jobs:
        more = len(dump_json(job)) + 2
        if batch and (len(batch) == SUBMITTED_AT_ONCE or size + more > BODY_LIMIT):
            yield batch
            batch, size = [], 2
        batch.append(job)
        size += more
    if batch:
        yield batch
