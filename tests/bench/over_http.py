"""Throughput of workers and clients over HTTP, with authentication."""

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from uuid import UUID, uuid4

import orjson
from django.db import connection

from jobs.models import WorkerJob
from liveness.services import tokens
from tests.bench import web
from tests.bench.cost import Cost
from tests.bench.database import add_jobs, bare_copy, begin, run, settle_down
from tests.bench.load import Talk, drive, request
from tests.bench.rows import Row, Step, alternate

API = "/api/v1"
SECONDS = 3
CONNECTIONS = 64
BATCH = 100
SINGLE_GOAL = "≥ 1,500/s, ≤ 1,200 µs"
JOB = {"action": {"type": "script", "runner": "local", "command": "true"}, "payload": {"n": 1}}

EVENTS = {"STARTED": {"event": "STARTED"}, "COMPLETED": {"event": "COMPLETED", "output": 1}}
APART, TOGETHER = (("STARTED",), ("COMPLETED",)), (("STARTED", "COMPLETED"),)

CLAIM = """
    with claimed as (
        update bare_job set state = 'CLAIMED', attempt_id = uuid7(), attempt_count = attempt_count + 1
         where id = any(array(
               select id from bare_job where state = 'PENDING' and required_tags = '{script}'
                order by required_tags, priority desc, available_at, id limit %s for update skip locked))
     returning id, attempt_id)
    insert into bare_attempt (job_id, id, number, server_id)
    select id, attempt_id, 1, %s from claimed returning id
"""
START = """
    with begun as (
        update bare_job set state = 'RUNNING' from bare_attempt a where a.job_id = bare_job.id and a.id = any(%s))
    update bare_attempt set state = 'RUNNING', started_at = clock_timestamp() where id = any(%s)
"""
COMPLETE = """
    with done as (
        update bare_job set state = 'COMPLETED', attempt_id = null, output = '1', finished_at = clock_timestamp()
          from bare_attempt a where a.job_id = bare_job.id and a.id = any(%s))
    update bare_attempt set state = 'COMPLETED', finished_at = clock_timestamp() where id = any(%s)
"""
SUBMIT = """
    insert into bare_job (id, owner_id, fingerprint, action, payload, required_tags)
    select uuid7(), %s, '', r.action, r.payload, '{script}'
      from jsonb_to_recordset(%s::jsonb) as r(action jsonb, payload jsonb)
"""


def heartbeats(data_dir: Path, step: Step) -> Row:
    """Measure heartbeats of workers without jobs, with authentication and history, and response times at half that
    rate."""
    servers = begin(CONNECTIONS)
    bare_copy("liveness_server", "bare_server")
    settle_down()
    body = {"state": "RUNNING"}
    with web.control_plane(data_dir) as own, web.plain_view(data_dir) as plain:
        beats = [request(f"{API}/servers/{server.pk}/heartbeat", token, body) for server, token in servers]
        updates = [request(f"/{server.pk}", token, body) for server, token in servers]
        ours, theirs = Cost(own), Cost(plain)
        value, reference = alternate(step, lambda: rate(ours, beats), lambda: rate(theirs, updates))
        half = Cost(own)
        rate(half, beats, pause=2 * len(beats) / value)
    more = {**ours.as_dict(), **half.as_dict("half_"), **theirs.as_dict("reference_")}
    goal = "≥ 3, p99 < 100 ms at half of it"
    return Row("heartbeats", value, "/s", reference, "a plain DRF view: one UPDATE by key", goal, more)


def rate(cost: Cost, requests: list[bytes], pause: float = 0.0) -> float:
    """Return responses per second if each connection repeats its request.

    It waits `pause` seconds between two requests, or none.
    """
    assert cost.port is not None
    began = time.perf_counter()
    answered = 0

    def over_and_over(number: int) -> Talk:
        nonlocal answered
        due = began + pause * number / len(requests)
        while time.perf_counter() < began + SECONDS:
            if due > time.perf_counter():
                yield due
            yield requests[number]
            answered += 1
            due += pause

    with cost.measured():
        took = drive(cost.port, map(over_and_over, range(len(requests))), cost.delays)
    cost.units += answered
    return answered / took


def throughput(data_dir: Path, step: Step) -> Row:
    """Measure jobs that eight workers claim, start and complete durably, a hundred at a time."""
    number = 10_000

    def prepared(workers: int) -> list[tuple[UUID, str]]:
        servers = begin(workers)
        add_jobs(number, ["script"])
        return [(server.pk, token) for server, token in servers]

    def over_http() -> float:
        servers = prepared(8)
        settle_down()
        with ours.measured():
            took = drive(port, [work(server, token) for server, token in servers], ours.delays)
        ours.units += number
        assert WorkerJob.objects.filter(state="COMPLETED").count() == number
        return number / took

    def bare() -> float:
        ((server, _),) = prepared(1)
        bare_copy("jobs_workerjob", "bare_job")
        bare_copy("jobs_attempt", "bare_attempt")
        settle_down()
        theirs.units += number
        began = time.perf_counter()
        with theirs.measured(), connection.cursor() as cursor:
            for _ in range(number // BATCH):
                cursor.execute(CLAIM, [BATCH, server])
                ids = [id for (id,) in cursor.fetchall()]
                cursor.execute(START, [ids, ids])
                cursor.execute(COMPLETE, [ids, ids])
        return number / (time.perf_counter() - began)

    with web.control_plane(data_dir) as port:
        ours, theirs = Cost(port), Cost()
        value, reference = alternate(step, over_http, bare)
    more = {**ours.as_dict(), **theirs.as_dict("reference_")}
    return Row("throughput", value, "jobs/s", reference, "the same writes bare, one connection", "≥ PgQueuer", more)


def work(server: UUID, token: str, batch: int = BATCH, calls: Iterable[Sequence[str]] = APART) -> Talk:
    """Claim so many jobs and report these events for all in each call, until no jobs are left."""
    while True:
        claim = {"limit": batch, "request_id": str(uuid4())}
        answer = yield request(f"{API}/servers/{server}/claims", token, claim)
        ids = [attempt["id"] for attempt in orjson.loads(answer)["attempts"]]
        if not ids:
            return
        for events in calls:
            reports = [{"attempt": id, **EVENTS[event]} for event in events for id in ids]
            answer = yield request(f"{API}/servers/{server}/reports", token, {"reports": reports})
            assert all(result["accepted"] for result in orjson.loads(answer)["results"])


def submission(data_dir: Path, step: Step) -> Row:
    """Measure jobs that two clients submit in lists of a thousand."""
    return measure_submission(data_dir, step, "submission", clients=2, calls=10, size=1000, goal="≥ 20,000/s, ≤ 100 µs")


def single_submission(data_dir: Path, step: Step) -> Row:
    """Measure jobs that eight clients submit one by one."""
    return measure_submission(data_dir, step, "single_submission", clients=8, calls=2000, size=1, goal=SINGLE_GOAL)


def measure_submission(data_dir: Path, step: Step, name: str, *, clients: int, calls: int, size: int, goal: str) -> Row:
    """Submit `calls` lists of `size` jobs."""
    number = calls * size

    def over_http() -> float:
        begin()
        callers = [tokens.create_token(f"client {number}", "client") for number in range(clients)]
        requests = [request(f"{API}/jobs", caller, [JOB] * size if size > 1 else JOB) for caller in callers]
        settle_down()

        def submits(body: bytes) -> Talk:
            for _ in range(calls // clients):
                yield body

        with ours.measured():
            took = drive(port, map(submits, requests), ours.delays)
        ours.units += number
        assert WorkerJob.objects.count() == number
        return number / took

    def bare() -> float:
        begin()
        bare_copy("jobs_workerjob", "bare_job")
        settle_down()
        owner, body = run("select id from liveness_apitoken limit 1"), orjson.dumps([JOB] * size).decode()
        theirs.units += number
        began = time.perf_counter()
        with theirs.measured():
            for _ in range(calls):
                run(SUBMIT, [owner, body])
        return number / (time.perf_counter() - began)

    with web.control_plane(data_dir) as port:
        ours, theirs = Cost(port), Cost()
        value, reference = alternate(step, over_http, bare)
    more = {**ours.as_dict(), **theirs.as_dict("reference_")}
    return Row(name, value, "jobs/s", reference, "INSERT … SELECT of as many, one connection", goal, more)
