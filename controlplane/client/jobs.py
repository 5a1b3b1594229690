"""Calls about jobs."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Unpack, cast

from controlplane.agent.limits import BODY_LIMIT
from controlplane.client.answers import Job, LogLine, NewJob
from controlplane.client.requests import Action, ChangedFields, JobOptions, Reference, dump_json, id_of
from controlplane.client.session import Polls, Refused, Session, StillRunning

SUBMITTED_AT_ONCE = 1000
WAITED_FOR_AT_ONCE = 100
LOG_POLL = 1.0
"""Seconds between two reads of a followed log."""


class JobCalls(Session):
    def submit(
        self, action: Action, payload: Any = None, *, namespace: str | None = None, **options: Unpack[JobOptions]
    ) -> NewJob:
        """Submit a job once, however often the call is tried.

        A second submission with the same `key` returns the same job. The job gets the namespace of the token. Another
        `namespace` is refused.
        """
        job = {"key": new_key(), **options, "action": action, **({} if payload is None else {"payload": payload})}
        return cast(NewJob, self.call("POST", "/jobs", job, query={"namespace": namespace}))

    def submit_many(self, jobs: Iterable[Mapping[str, Any]], *, namespace: str | None = None) -> list[NewJob]:
        """Submit jobs, each an object with its action, payload and options. Return them in the same order.

        One call has up to a thousand jobs and a body of up to 1 MiB. Either all jobs of a call are accepted, or none.
        More jobs need several calls. If one of these is refused, the jobs of earlier calls stay submitted. To try again
        safely, give each job a `key`.
        """
        batches = in_batches({"key": new_key(), **job} for job in jobs)
        query = {"namespace": namespace}
        return [job for batch in batches for job in self.call("POST", "/jobs", batch, query=query)["items"]]

    def job(self, job: Reference) -> Job:
        """Return the job as it is now, with all fields."""
        return cast(Job, self.call("GET", f"/jobs/{id_of(job)}"))

    def jobs(
        self, *, state: str | None = None, kind: str | None = None, key: str | None = None, tag: str | None = None,
        flag: str | None = None, namespace: str | None = None, page: int | None = None,
    ) -> Iterator[Job]:  # fmt: skip
        """Yield jobs, latest first, fetched in pages of `page`."""
        filters = {"state": state, "kind": kind, "key": key, "tag": tag, "flag": flag, "namespace": namespace}
        return self.items("/jobs", {**filters, "limit": page})

    def wait(self, job: Reference, timeout: float | None = None) -> Job:
        """Wait until the job has ended in any state, and return it. Raise StillRunning after `timeout` seconds."""
        id = id_of(job)
        for wait in Polls(self.long_poll, timeout):
            current = cast(Job, self.call("GET", f"/jobs/{id}", query={"wait": wait}, wait=wait))
            if current["finished_at"] is not None:
                return current
        raise StillRunning(f"Job {id} is {current['state']} after {timeout:g} s", [id])

    def as_ended(self, jobs: Iterable[Reference], timeout: float | None = None) -> Iterator[Job]:
        """Yield each job as soon as it has ended. Raise StillRunning if some have not ended after `timeout` seconds."""
        waiting = dict.fromkeys(map(id_of, jobs))
        polls = Polls(self.long_poll, timeout)
        return self._as_ended(waiting, polls, timeout)

    def _as_ended(self, waiting: dict[str, None], polls: Polls, timeout: float | None) -> Iterator[Job]:
        for wait in polls:
            ids = list(waiting)
            for start in range(0, len(ids), WAITED_FOR_AT_ONCE):
                some = ids[start : start + WAITED_FOR_AT_ONCE]
                # If there are several calls, only the last one waits, and only briefly, because jobs of the other calls
                # may end.
                last, only = start + len(some) == len(ids), len(some) == len(ids)
                kept = wait if only else min(wait, LOG_POLL) if last and not polls.progress else 0.0
                answer = self.call("GET", "/jobs/wait", query={"id": some, "wait": kept}, wait=kept)
                if answer["unknown"]:
                    raise Refused(
                        404,
                        "not_found",
                        f"These jobs do not exist, or this token may not see them: {', '.join(answer['unknown'])}",
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
        """Wait until one of the jobs has ended, and return it. Raise StillRunning after `timeout` seconds."""
        for job in self.as_ended(jobs, timeout):
            return job
        raise ValueError("No jobs to wait for")

    def cancel(self, job: Reference, note: str = "") -> Job:
        """Cancel a waiting job now, or ask the worker of a running job to stop it. Call `wait` to wait for the end."""
        return cast(Job, self._end(f"/jobs/{id_of(job)}", "cancel", {"note": note}, "job_ended", "CANCELLED"))

    def resubmit(self, job: Reference, note: str = "", *, force: bool = False) -> Job:
        """Take a live job from its worker, or submit a failed job again. Return the job that runs now."""
        body = {"note": note} | ({"force": True} if force else {})
        return cast(Job, self.call("POST", f"/jobs/{id_of(job)}/resubmit", body, key=new_key()))

    def change(self, job: Reference, *, note: str = "", **changes: Unpack[ChangedFields]) -> Job:
        """Change fields of a waiting job, such as `priority=10`.

        Raise Refused with `already_started` if it no longer waits. `available_at=None` means now.
        """
        return cast(Job, self.call("PATCH", f"/jobs/{id_of(job)}", {**changes, "note": note}))

    def fail(self, job: Reference, reason: str = "", note: str = "") -> Job:
        """Fail a waiting or live job permanently."""
        body = {"reason": reason, "note": note}
        return cast(Job, self._end(f"/jobs/{id_of(job)}", "fail", body, "job_ended", "FAILED"))

    def placement(self, job: Reference) -> dict[str, Any]:
        """Return the workers that may run a waiting job, and for each other worker the filter that excludes it."""
        return self.call("GET", f"/jobs/{id_of(job)}/placement")

    def logs(self, job: Reference, *, follow: bool = False, attempt: int | None = None) -> Iterator[LogLine]:
        """Yield the log lines of the job's code, oldest first. With `follow`, continue until the job has ended."""
        path, cursor, polls = f"/jobs/{id_of(job)}/logs", "0", Polls(self.long_poll)
        for asked in polls:
            page = self._log_page(path, cursor, attempt, wait=asked if follow else 0.0)
            yield from page["items"]
            while page["next"]:
                page = self._log_page(path, page["next"], attempt)
                yield from page["items"]
            if page["complete"] or not follow:
                return
            polls.progress = page["last"] != cursor
            cursor = page["last"]

    def _log_page(self, path: str, cursor: str, attempt: int | None = None, wait: float = 0.0) -> dict[str, Any]:
        query = {"cursor": cursor, "attempt": attempt} | ({"wait": wait} if wait else {})
        return self.call("GET", path, query=query, wait=wait)


def new_key() -> str:
    """Return a new idempotency key. The control plane recognises a repeated call by it."""
    return str(uuid.uuid4())


def in_batches(jobs: Iterable[Mapping[str, Any]], around: int = 2) -> Iterator[list[Mapping[str, Any]]]:
    """Split jobs into lists, each as long as one call allows. `around` is the size of the body without the jobs."""
    batch: list[Mapping[str, Any]] = []
    size = around
    for job in jobs:
        more = len(dump_json(job)) + 2
        if batch and (len(batch) == SUBMITTED_AT_ONCE or size + more > BODY_LIMIT):
            yield batch
            batch, size = [], around
        batch.append(job)
        size += more
    if batch:
        yield batch
