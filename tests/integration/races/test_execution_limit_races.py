"""Executions with limits under many starts, ends and cancellations at the same time, with real commits."""

import random
import threading
import time

import pytest

from jobs.models import Execution, LimitRecheck, LimitSlot
from jobs.services import limits, sweep
from liveness.models import Tally
from liveness.services import tokens
from tests.support.executions import SCRIPT, step
from tests.support.http import Caller
from tests.support.rounds import short_and_long

ALLOWED = {"a": 2, "b": 3, "c:*": 1}
KEYS = ("a", "b", "c:1", "c:2")
OPEN = ("RUNNING", "CANCELLING")


@pytest.fixture
def plane(transactional_db):
    """Return callers: an operator and a client."""
    return Caller(tokens.create_token("boss", "operator")), Caller(tokens.create_token("client", "client"))


def are_all_over():
    return not Execution.objects.filter(state__in=OPEN).exists()


def random_execution(chance, number):
    """Return an execution with one or two keys. Some have steps without a worker, and some a child with the keys."""
    held = {key: chance.choice([1, 1, 2]) if key in "ab" else 1 for key in chance.sample(KEYS, chance.randint(1, 2))}
    steps = [step("x", unmatched="wait"), step("y", "x", unmatched="wait")]
    if chance.random() < 0.3:
        steps = [step("w", action={"type": "wait", "seconds": 0}), step("x", "w", unmatched="wait")]
    definition = {"name": f"e{number}", "steps": steps, "limits": held}
    if chance.random() < 0.3:
        return {"name": "outer", "steps": [step("inner", action={"type": "execution", **definition})]}
    return definition


class Running:
    """Slots of the executions whose code runs now, counted by the code itself."""

    def __init__(self):
        self._lock, self._code, self.most = threading.Lock(), {}, dict.fromkeys(KEYS, 0)

    def begin(self, attempt):
        with self._lock:
            self._code[attempt["id"]] = attempt["job"]["execution"]
            holders = Execution.objects.filter(pk__in=set(self._code.values())).values_list("limits", flat=True)
            for key in KEYS:
                now = sum((held or {}).get(key, 0) for held in holders)
                self.most[key] = max(self.most[key], now)

    def end(self, attempt):
        with self._lock:
            del self._code[attempt["id"]]


def work_off(worker, running, seed, deadline):
    chance = random.Random(seed)
    while not are_all_over() and time.monotonic() < deadline:
        for attempt in worker.claim(limit=chance.randint(1, 5)):
            if chance.random() < 0.1:
                worker.report({"attempt": attempt["id"], "event": "RELEASED", "reason": "fenced"})
                continue
            worker.report({"attempt": attempt["id"], "event": "STARTED"})
            running.begin(attempt)
            time.sleep(chance.random() / 200)
            running.end(attempt)
            failed = {"event": "FAILED", "error": {"code": "BAD", "message": "no"}}
            end = failed if chance.random() < 0.1 else {"event": "COMPLETED"}
            [result] = worker.report({"attempt": attempt["id"], **end})
            if not result["accepted"]:
                worker.report({"attempt": attempt["id"], "event": "CANCELLED"})


def cancel_some(boss, deadline):
    chance = random.Random(5)
    while not are_all_over() and time.monotonic() < deadline:
        for run in Execution.objects.filter(state="RUNNING").order_by("?")[:1]:
            if chance.random() < 0.3:
                boss.post(f"/executions/{run.pk}/cancel", {})
        time.sleep(0.05)


def look_at_waits(deadline):
    while not are_all_over() and time.monotonic() < deadline:
        sweep.run_sweep()
        limits.settle_left()
        time.sleep(0.2)


@pytest.mark.parametrize("count", short_and_long(20, 60))
def test_executions_exceed_no_limit_and_leak_no_slot_however_they_end(plane, committed, threads, count):
    boss, client = plane
    for pattern, allowed in ALLOWED.items():
        assert boss.call("put", f"/limits/{pattern}", {"running": allowed}).status_code == 201
    chance, running, deadline = random.Random(1), Running(), time.monotonic() + 90
    crew = [committed(name=f"w{number}") for number in range(4)]
    for number in range(count):
        answer = client.post("/executions", random_execution(chance, number))
        assert answer.status_code == 201, answer.json()
    calls = [threads(work_off, worker, running, number, deadline) for number, worker in enumerate(crew)]
    calls += [threads(cancel_some, boss, deadline), threads(look_at_waits, deadline)]
    for call in calls:
        call.result(120)
    assert are_all_over(), list(Execution.objects.filter(state__in=OPEN).values("id", "state", "parked_by", "limits"))
    assert running.most["a"] <= 2 and running.most["b"] <= 3 and running.most["c:1"] <= 1 and running.most["c:2"] <= 1
    limits.settle_left()
    assert LimitSlot.objects.count() == LimitRecheck.objects.count() == 0
    sweep.run_sweep()
    assert not Tally.objects.filter(name="limit_repairs").exists()


def test_an_execution_starts_once_however_many_processes_look(plane, threads):
    boss, client = plane
    boss.call("put", "/limits/a", {"running": 0})
    body = {"name": "e", "steps": [{"key": "x", "action": SCRIPT, "unmatched": "wait"}], "limits": ["a"]}
    assert all(client.post("/executions", body).status_code == 201 for _ in range(20))
    boss.call("put", "/limits/a", {"running": 5})
    calls = [threads(limits.settle_left) for _ in range(6)]
    for call in calls:
        call.result(30)
    assert Execution.objects.filter(parked_by__isnull=True).count() == LimitSlot.objects.count() == 5


@pytest.mark.parametrize("rounds", short_and_long(6, 20))
def test_a_slot_that_an_end_frees_while_an_execution_begins_to_wait_is_not_missed(plane, committed, threads, rounds):
    boss, client = plane
    boss.call("put", "/limits/a", {"running": 1})
    body = {"name": "e", "steps": [{"key": "x", "action": SCRIPT, "unmatched": "wait"}], "limits": ["a"]}
    one = committed(name="one")
    client.post("/executions", body)
    for _ in range(rounds):
        held = one.hold()
        done, begun = threads(one.complete, held), threads(client.post, "/executions", body)
        done.result(10)
        assert begun.result(10).status_code == 201
        assert Execution.objects.filter(state="RUNNING", parked_by__isnull=True).count() == 1
