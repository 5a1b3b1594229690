"""Cost of followers of logs that get no new lines, over HTTP."""

from pathlib import Path
from uuid import UUID

from jobs.models import WorkerJob
from liveness.models import ApiToken
from liveness.services import tokens
from tests.bench.database import add_jobs, begin, run_all_jobs, settle_down
from tests.bench.idle import plane, watch
from tests.bench.load import Talk
from tests.bench.over_http import API
from tests.bench.rows import Row, Step, alternate

FOLLOWERS, READERS = 1000, 50
WAIT = 30
"""Seconds that a call waits, as `controlplane logs --follow` does."""


def follow(data_dir: Path, step: Step) -> Row:
    """Compare the CPU of a thousand followers with that of callers that read their log each second."""
    begin(1)
    add_jobs(FOLLOWERS, ["script"])
    run_all_jobs()
    token = tokens.create_token("bench reader", "client")
    WorkerJob.objects.update(owner=ApiToken.objects.get(name="bench reader"))
    jobs = list(WorkerJob.objects.values_list("pk", flat=True))
    settle_down()

    def following() -> float:
        return 100 * watch(port, [follows(job, token) for job in jobs])

    def reading() -> float:
        return 100 * watch(port, [reads(job, token) for job in jobs[:READERS]]) * FOLLOWERS / READERS

    with plane(data_dir) as port:
        value, reference = alternate(step, following, reading, rounds=1)
    against = f"{FOLLOWERS} that read it each second (measured: {READERS})"
    return Row("follow", value, "% of a core", reference, against, "≤ 10 % of a core")


def read_log(job: UUID, token: str, wait: float) -> bytes:
    lines = [
        f"GET {API}/jobs/{job}/logs?cursor=0&wait={wait:g} HTTP/1.1", "Host: localhost",
        f"Authorization: Bearer {token}", "", "",
    ]  # fmt: skip
    return "\r\n".join(lines).encode()


def follows(job: UUID, token: str) -> Talk:
    """Read the log, then wait for its next line. The followers arrive one by one, so their waits end one by one."""
    yield read_log(job, token, 0)
    while True:
        yield read_log(job, token, WAIT)


def reads(job: UUID, token: str) -> Talk:
    while True:
        yield read_log(job, token, 0)
        yield b""  # a second later
