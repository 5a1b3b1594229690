"""Executions and triggers that many transactions change at the same time, with real commits and connections."""

import random
import time
from threading import Event

import pytest
from django.db import transaction

from controlplane.core.model_fields import ClockTimestamp
from jobs.models import Execution, Trigger, WorkerJob
from jobs.services import cancellation, evaluations, step_data, sweep
from jobs.sql import sql
from liveness.services import tokens
from tests.integration.races import test_hot_paths as hot
from tests.support.executions import SCRIPT, Run, step
from tests.support.http import Caller, Worker
from tests.support.rounds import short_and_long, some_seeds


@pytest.fixture
def begin(committed):
    client = Caller(tokens.create_token("a client", "client"))

    def begin(*steps, **fields):
        answer = client.post("/executions", {"name": "race", "steps": list(steps), **fields})
        assert answer.status_code == 201, answer.json()
        return Run(client, answer.json()["id"])

    return begin


def work_off(worker: Worker, until):
    """Report one step after the other, each with its own call, until nothing is left."""
    while not until():
        for attempt in worker.claim(limit=3):
            worker.report({"attempt": attempt["id"], "event": "STARTED"})
            worker.report({"attempt": attempt["id"], "event": "COMPLETED", "output": 1})


def is_over(run):
    return lambda: Execution.objects.filter(pk=run.id, finished_at__isnull=False).exists()


@pytest.mark.parametrize("rounds", short_and_long(1, 3))
def test_the_last_of_many_that_end_at_once_frees_what_waits_for_them_all(committed, begin, threads, rounds):
    for _ in range(rounds):
        keys = [f"s{n}" for n in range(24)]
        run = begin(*map(step, keys), step("z", *keys))
        crew = [committed(name=f"w{n}") for n in range(6)]
        for future in [threads(work_off, worker, is_over(run)) for worker in crew]:
            future.result(60)
        assert run.state == "COMPLETED"
        assert set(run.states().values()) == {"COMPLETED"}


def test_children_that_end_at_once_end_their_parent(committed, begin, threads):
    child = {"type": "execution", "name": "inner", "steps": [step("x"), step("y", "x")]}
    keys = [f"c{n}" for n in range(12)]
    run = begin(*[step(key, action=child) for key in keys], step("z", *keys))
    crew = [committed(name=f"w{n}") for n in range(6)]
    for future in [threads(work_off, worker, is_over(run)) for worker in crew]:
        future.result(60)
    assert run.state == "COMPLETED"
    assert run.step("c3")["output"] == {"x": 1, "y": 1}


def test_a_lock_on_a_step_does_not_count_as_a_slow_path(committed, begin, threads):
    run = begin(step("a"), step("b", "a", payload={"from": "$.steps.a.output"}))
    worker = committed(name="one")
    (attempt,) = worker.claim()
    worker.report({"attempt": attempt["id"], "event": "STARTED"})
    hot.run("begin")
    try:
        hot.run("select id from jobs_workerjob where step = 'b' for update")
        ending = threads(worker.report, {"attempt": attempt["id"], "event": "COMPLETED", "output": 1})
        hot.waiting()
        time.sleep(step_data.TIMEOUT + 0.5)
    finally:
        hot.run("rollback")
    ending.result(30)
    assert run.states() == {"a": "COMPLETED", "b": "PENDING"}


@pytest.mark.parametrize("seed", some_seeds(2, 4))
def test_a_cancellation_during_all_changes_ends_every_step_and_starts_none(committed, begin, threads, seed):
    child = {"type": "execution", "name": "inner", "steps": [step("x"), step("y", "x")]}
    keys = [f"c{n}" for n in range(10)]
    run = begin(*[step(key, action=child) for key in keys], *[step(f"s{n}", *keys[:n]) for n in range(10)])
    crew = [committed(name=f"w{n}") for n in range(4)]
    work = [threads(work_off, worker, is_over(run)) for worker in crew]
    time.sleep(random.Random(seed).random() / 4)  # at any moment of the work
    cancellation.cancel_execution(run.id, "client:ann")
    for future in work:
        future.result(60)
    assert run.state == "CANCELLED"
    states = set(WorkerJob.objects.values_list("state", flat=True))
    assert states <= {"COMPLETED", "CANCELLED", "SKIPPED"}
    assert not Execution.objects.filter(finished_at__isnull=True).exists()
    assert sweep.run_sweep()["repaired"] == {}


def test_between_the_two_transactions_of_a_cancelling_nothing_is_given_out_or_begins(committed, begin, threads):
    keys = [f"s{n}" for n in range(60)]
    run = begin(*map(step, keys), *[step(f"z{n}", keys[n]) for n in range(60)])
    is_cancelling, wrong = Event(), []

    def work(worker):
        while not is_over(run)():
            after = is_cancelling.is_set()
            claimed = worker.claim(limit=3)
            wrong.extend(claimed if after else [])
            for attempt in claimed:
                after = is_cancelling.is_set()
                accepted = worker.start(attempt)["accepted"]
                wrong.extend([attempt] if after and accepted else [])
                worker.complete(attempt)

    crew = [threads(work, committed(name=f"w{n}")) for n in range(4)]
    until = time.monotonic() + 30
    while not WorkerJob.objects.filter(state="COMPLETED").exists():
        assert time.monotonic() < until
    cancellation.stop_executions([run.id], "CANCELLED", "by hand")
    is_cancelling.set()
    assert committed().claim() == []
    cancellation.halt_all_trees()
    for future in crew:
        future.result(60)
    assert wrong == [] and run.state == "CANCELLED"
    assert "COMPLETED" in run.states().values() and "CANCELLED" in run.states().values()


def test_four_schedulers_at_the_same_moment_double_nothing(committed, threads):
    operator = Caller(tokens.create_token("an operator", "operator"))
    template = {"name": "report", "steps": [step("a")]}
    body = {"name": "t", "interval_seconds": 3600, "action": SCRIPT, "execution": template}
    trigger = operator.post("/triggers", body).json()
    Trigger.objects.update(next_slot_at=ClockTimestamp())
    rounds = [threads(evaluations.evaluate_due_triggers) for _ in range(4)]
    assert sorted(evaluation.result(30) for evaluation in rounds) == [0, 0, 0, 1]
    assert len(operator.get(f"/triggers/{trigger['id']}").json()["slots"]) == 1


@pytest.mark.parametrize("key", ["done", "child", "blocked"])
@pytest.mark.parametrize("call", ["cancel", "resubmit", "fail"])
def test_a_refused_action_on_a_step_does_not_wait_for_its_tree(committed, begin, threads, key, call):
    child = {"type": "execution", "name": "inner", "steps": [step("x")]}
    run = begin(step("done"), step("child", action=child), step("blocked", "done", "child"), step("open"))
    worker = committed()
    for attempt in worker.claim():
        worker.start(attempt)
        if attempt["job"]["step"] == "done":
            worker.complete(attempt)
    job = run.step(key)["job"]
    operator = Caller(tokens.create_token("an operator", "operator"))
    with transaction.atomic():
        sql.lock_roots.fetch_rows(executions=[run.id])
        by_hand = threads(operator.post, f"/jobs/{job}/{call}", {})
        if (key, call) in [("child", "cancel"), ("blocked", "cancel")]:
            assert hot.someone_waits()
        else:
            assert by_hand.result(10).status_code == 409
        WorkerJob.objects.filter(pk=job).select_for_update().get()  # not a deadlock
    by_hand.result(10)


def test_of_two_triggers_of_one_name_at_the_same_moment_the_second_is_refused(committed, threads):
    operator = Caller(tokens.create_token("an operator", "operator"))
    body = {"name": "t", "interval_seconds": 3600, "action": SCRIPT, "execution": {"name": "x", "steps": [step("a")]}}
    with transaction.atomic():
        assert operator.post("/triggers", body).status_code == 201
        second = threads(operator.post, "/triggers", body)
        assert hot.someone_waits()
    assert (second.result(10).status_code, second.result().json()["code"]) == (409, "name_conflict")
