"""Limits under many claims, reports and changes at the same time, with real commits and connections."""

import random
import threading
import time

import pytest
from django.db import connection

from jobs.models import Attempt, LimitRecheck, LimitSlot, WorkerJob
from jobs.services import limits, sweep
from jobs.states import AttemptState
from liveness.models import Tally
from liveness.services import tokens
from tests.support.http import Caller
from tests.support.rounds import short_and_long

KEYS = ("a", "b", "c:1", "c:2")
ALLOWED = {"a": 2, "b": 3, "c:*": 1}


@pytest.fixture
def plane(transactional_db):
    """Return callers: an operator and a client."""
    return Caller(tokens.create_token("boss", "operator")), Caller(tokens.create_token("client", "client"))


class Running:
    """Count of what runs now, kept by the code itself."""

    def __init__(self):
        self._lock, self.now, self.most = threading.Lock(), dict.fromkeys(KEYS, 0), dict.fromkeys(KEYS, 0)

    def change(self, wanted, by):
        with self._lock:
            for key, slots in wanted.items():
                self.now[key] += by * slots
                self.most[key] = max(self.most[key], self.now[key])


def submit(client, **fields):
    body = {"action": {"type": "script", "command": "true"}, "unmatched": "wait", **fields}
    answer = client.post("/jobs", body)
    assert answer.status_code == 201, answer.json()
    return answer.json()


def random_limits(chance):
    return {key: chance.choice([1, 1, 2] if key in "ab" else [1]) for key in chance.sample(KEYS, chance.randint(1, 2))}


def is_all_done():
    return not WorkerJob.objects.exclude(state__in=["COMPLETED", "CANCELLED"]).exists()


def work_off(worker, running, seed, deadline):
    chance = random.Random(seed)
    while not is_all_done() and time.monotonic() < deadline:
        for attempt in worker.claim(limit=chance.randint(1, 5)):
            wanted = WorkerJob.objects.get(pk=attempt["job"]["id"]).limits
            running.change(wanted, 1)
            if chance.random() < 0.2:
                running.change(wanted, -1)
                worker.report({"attempt": attempt["id"], "event": "RELEASED", "reason": "fenced"})
                continue
            worker.report({"attempt": attempt["id"], "event": "STARTED"})
            time.sleep(chance.random() / 100)
            running.change(wanted, -1)
            worker.report({"attempt": attempt["id"], "event": "COMPLETED"})


def cancel_some(boss, seed, deadline):
    chance = random.Random(seed)
    while not is_all_done() and time.monotonic() < deadline:
        for job in WorkerJob.objects.filter(state="PENDING").order_by("?")[:1]:
            if chance.random() < 0.3:
                boss.post(f"/jobs/{job.pk}/cancel", {})
            else:
                boss.call("patch", f"/jobs/{job.pk}", {"priority": chance.randint(0, 9)})
        time.sleep(0.05)


@pytest.mark.parametrize("count", short_and_long(50, 150))
def test_no_limit_is_exceeded_and_no_slot_leaks_however_many_claim_at_once(plane, committed, threads, count):
    boss, client = plane
    for pattern, allowed in ALLOWED.items():
        assert boss.call("put", f"/limits/{pattern}", {"running": allowed}).status_code == 201
    chance, running, deadline = random.Random(1), Running(), time.monotonic() + 60
    bodies = [{"action": {"type": "script", "command": "true"}, "unmatched": "wait", "limits": random_limits(chance)}
              for _ in range(count)]  # fmt: skip
    assert client.post("/jobs", bodies).status_code == 201
    crew = [committed(name=f"w{n}") for n in range(6)]
    calls = [threads(work_off, worker, running, n, deadline) for n, worker in enumerate(crew)]
    calls.append(threads(cancel_some, boss, 7, deadline))
    for call in calls:
        call.result(90)
    assert is_all_done(), list(WorkerJob.objects.exclude(state="COMPLETED").values("state", "parked_by", "limits"))
    assert running.most["a"] <= 2 and running.most["b"] <= 3 and running.most["c:1"] <= 1 and running.most["c:2"] <= 1
    assert LimitSlot.objects.count() == LimitRecheck.objects.count() == 0
    sweep.run_sweep()
    assert not Tally.objects.filter(name="limit_repairs").exists()


@pytest.mark.parametrize("count", short_and_long(25, 60))
def test_rules_that_change_while_jobs_run_leave_no_job_behind(plane, committed, threads, count):
    boss, client = plane
    boss.call("put", "/limits/a", {"running": 1})
    for _ in range(count):
        submit(client, limits=["a"])
    deadline, running = time.monotonic() + 60, Running()
    crew = [committed(name=f"w{n}") for n in range(4)]

    def change_rules():
        chance = random.Random(3)
        while not is_all_done() and time.monotonic() < deadline:
            chosen = chance.choice([0, 1, 2, 5, None])
            if chosen is None:
                boss.call("delete", "/limits/a")
            else:
                boss.call("put", "/limits/a", {"running": chosen})
            time.sleep(0.03)
            boss.call("put", "/limits/a", {"running": 2})

    calls = [threads(work_off, worker, running, n, deadline) for n, worker in enumerate(crew)]
    calls.append(threads(change_rules))
    for call in calls:
        call.result(90)
    assert is_all_done()
    assert LimitSlot.objects.count() == 0


def test_a_worker_that_dies_leaks_no_slot(plane, committed):
    boss, client = plane
    boss.call("put", "/limits/a", {"running": 1})
    jobs = [submit(client, limits=["a"])["id"] for _ in range(2)]
    dead = committed(config={"worker_task_restart_strategy": "IMMEDIATELY"})
    dead.hold()
    boss.post(f"/servers/{dead.id}/disconnect", {"note": "dead"})
    limits.settle_left()
    held = Attempt.objects.filter(state__in=[AttemptState.CLAIMED, AttemptState.RUNNING]).count()
    assert LimitSlot.objects.count() >= held
    dead.post(f"/servers/{dead.id}/ended", {})
    living = committed(name="living")
    deadline = time.monotonic() + 30
    while not is_all_done() and time.monotonic() < deadline:
        sweep.run_sweep()
        for attempt in living.claim():
            living.start(attempt)
            living.complete(attempt)
    assert is_all_done(), (jobs, list(WorkerJob.objects.values("state", "parked_by")))
    assert LimitSlot.objects.count() == 0


@pytest.mark.parametrize("rounds", short_and_long(6, 20))
def test_a_slot_that_is_freed_while_a_claim_parks_is_not_missed(plane, committed, threads, rounds):
    """The claim and the end of the last holder run at the same moment, again and again."""
    boss, client = plane
    boss.call("put", "/limits/a", {"running": 1})
    one, two = committed(name="one"), committed(name="two")
    for _ in range(rounds):
        first = submit(client, limits=["a"], tags=["script"])["id"]
        held = one.hold()
        assert held["job"]["id"] == first
        second = submit(client, limits=["a"])["id"]
        done, claimed = threads(one.complete, held), threads(two.claim, 1)
        done.result(10)
        attempts = claimed.result(10) or two.claim()
        assert [attempt["job"]["id"] for attempt in attempts] == [second]
        two.start(attempts[0])
        two.complete(attempts[0])


def test_a_claim_without_limited_jobs_never_calls_the_function_of_limits(worker, submit):
    submit(unmatched="wait")
    with connection.cursor() as cursor:
        cursor.execute("alter function grant_slots(uuid[], jsonb[], text, jsonb) rename to grant_slots_away")
        made = "create function grant_slots(uuid[], jsonb[], text, jsonb) returns table (job uuid, missing text)"
        cursor.execute(f"{made} language plpgsql as $$ begin raise 'called'; end $$")
    assert len(worker().claim()) == 1
