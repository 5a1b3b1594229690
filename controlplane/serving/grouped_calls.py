"""Calls that share an SQL statement with others of their kind and take no seat: plain heartbeats, and single jobs."""

from collections import Counter
from collections.abc import Awaitable

from controlplane.agent.tracing import span_of_submission
from controlplane.core.batching import GroupCommit
from controlplane.core.bearer import read_bearer
from controlplane.core.threads import Threads
from controlplane.serving.answers import JSON, Answer
from controlplane.serving.request import Request
from controlplane.serving.seats import Call
from jobs.api import shortcut, single_jobs
from jobs.services.heartbeats import PlainHeartbeat
from jobs.services.submission import SingleJob

THREADS = 4
"""Number of threads for heartbeats. If a statement hangs in one thread, later heartbeats use another."""
SINGLE_JOB_THREADS = 2
"""Number of threads for single jobs, for the same reason."""
SINGLE_JOBS, SINGLE_JOBS_OF_ONE = 256, 32
"""Largest number of single jobs that wait for their statement at once, of all callers and of one. More jobs take
seats."""


class GroupedCalls:
    """Groups of calls, one for each kind."""

    def __init__(self) -> None:
        let_go = shortcut.let_go_of_connection
        self._record = GroupCommit(shortcut.answers, shortcut.patience(), Threads(THREADS, "heartbeats", let_go))
        self._store = GroupCommit(
            single_jobs.answers,
            single_jobs.PATIENCE,
            Threads(SINGLE_JOB_THREADS, "single jobs", let_go),
            single_jobs.GATHERING,
        )
        self._storing: Counter[str] = Counter()

    async def answer(self, request: Request, call: Call, body: bytes) -> Answer | None:
        """Return the response of a call that shares its statement, or None if Django must answer the call."""
        if beat := plain_heartbeat_of(request, call, body):
            return await grouped_answer(200, self._record(beat))
        if self._storing.total() >= SINGLE_JOBS or self._storing[call.key] >= SINGLE_JOBS_OF_ONE:
            return None
        if single := single_job_of(request, body):
            return await self._store_job(single, call.key)
        return None

    async def _store_job(self, single: SingleJob, key: str) -> Answer | None:
        self._storing[key] += 1
        try:
            with span_of_submission(single.traceparent) as trace:
                return await grouped_answer(201, self._store(single.traced(trace)))
        finally:
            self._storing[key] -= 1
            self._storing += Counter()  # remove callers that have no waiting job


async def grouped_answer(status: int, content: Awaitable[bytes | None]) -> Answer | None:
    try:
        body = await content
    except shortcut.UNHEARD as error:
        response = shortcut.unheard(error)
        return Answer(response.status_code, list(response.items()), response.content)
    return None if body is None else Answer(status, JSON, body)


def plain_heartbeat_of(request: Request, call: Call, body: bytes) -> PlainHeartbeat | None:
    """Return the heartbeat if the call is a plain one."""
    if call.token is None or request.method != "POST" or not request.path.endswith("/heartbeat"):
        return None
    return shortcut.parse_plain_heartbeat(call.token, request.headers, body)


def single_job_of(request: Request, body: bytes) -> SingleJob | None:
    """Return the job if the call submits a plain one."""
    if request.path != single_jobs.PATH or request.method != "POST" or request.query:
        return None
    bearer = read_bearer(request.by_name.get("authorization", ""))
    return single_jobs.parse_single_job(bearer, request.headers, body)
