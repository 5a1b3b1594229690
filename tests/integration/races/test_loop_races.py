"""Loops that several workers end at the same time, with real commits and connections."""

import pytest
from django.db import connection

from jobs.models import Execution, WorkerJob
from liveness.services import tokens
from tests.integration.races import test_hot_paths as hot
from tests.integration.races.test_execution_races import is_over, work_off
from tests.support.executions import Run, step
from tests.support.http import Caller
from tests.support.loops import child_of


@pytest.fixture
def begin(committed):
    client = Caller(tokens.create_token("a client", "client"))

    def begin(items, **fields):
        body = {"name": "race", "steps": [step("each", for_each="$.inputs.all", **fields)], "inputs": {"all": items}}
        return Run(client, client.post("/executions", body).json()["id"])

    return begin


def held(worker):
    """Start all items that a worker gets, and return their attempts by key."""
    attempts = worker.claim()
    worker.report(*[{"attempt": attempt["id"], "event": "STARTED"} for attempt in attempts])
    return {attempt["job"]["step"]: attempt["id"] for attempt in attempts}


def test_two_items_that_end_at_once_start_two_others(committed, begin, threads):
    begin([1, 2, 3, 4], max_parallel=2)
    one, two = committed(name="one", max_concurrent=1), committed(name="two", max_concurrent=1)
    (first,), (second,) = held(one).values(), held(two).values()
    hot.run("begin")
    try:
        hot.run("select id from jobs_execution for update")
        ends = [
            threads(worker.report, {"attempt": attempt, "event": "COMPLETED", "output": 1})
            for worker, attempt in ((one, first), (two, second))
        ]
        hot.waiting()
    finally:
        hot.run("rollback")
    for end in ends:
        end.result(30)
    assert WorkerJob.objects.filter(state="PENDING", parked_by__isnull=True).count() == 2


def test_no_more_items_than_max_parallel_are_ever_held(committed, begin, threads):
    run = begin(list(range(40)), max_parallel=3)
    crew = [committed(name=f"w{n}") for n in range(4)]
    work = [threads(work_off, worker, is_over(run)) for worker in crew]
    most = 0
    while not all(future.done() for future in work):
        with connection.cursor() as cursor:
            cursor.execute("select count(*) from jobs_workerjob where state in ('CLAIMED', 'RUNNING') and loop is null")
            most = max(most, cursor.fetchone()[0])
    for future in work:
        future.result(60)
    assert (run.state, run.step("each")["output"]) == ("COMPLETED", [1] * 40)
    assert 0 < most <= 3


def test_a_failed_item_cancels_the_waiting_ones_after_its_commit(committed, begin):
    run = begin([1, 2, 3])
    worker = committed(name="one", max_concurrent=1)
    (attempt,) = held(worker).values()
    worker.report({"attempt": attempt, "event": "FAILED", "error": {"code": "BAD", "message": "no"}})
    assert child_of(run).states() == {"0": "FAILED", "1": "CANCELLED", "2": "CANCELLED"}
    assert (child_of(run).state, run.state) == ("FAILED", "FAILED")


def test_two_items_that_fail_at_once_stop_a_loop_once(committed, begin, threads):
    run = begin(list(range(20)))
    crew = [committed(name=f"w{n}", max_concurrent=1) for n in range(4)]
    attempts = [attempt for worker in crew for attempt in held(worker).values()]
    bad = {"event": "FAILED", "error": {"code": "BAD", "message": "no"}}
    ends = [threads(worker.report, {"attempt": attempt, **bad}) for worker, attempt in zip(crew, attempts, strict=True)]
    for end in ends:
        end.result(30)
    assert Execution.objects.filter(finished_at__isnull=True).count() == 0
    assert set(child_of(run).states().values()) == {"FAILED", "CANCELLED"}
    assert run.step("each")["error"]["code"] == "ITEMS_FAILED"
