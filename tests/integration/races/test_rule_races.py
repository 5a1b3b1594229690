"""Rules by action, tag and namespace under many claims at the same time, with real commits and connections."""

import random
import threading
import time
from collections import Counter
from contextlib import contextmanager

import pytest
from django.db import connection

from jobs.models import Attempt, LimitRecheck, LimitSlot, TakenAttempt, WorkerJob
from jobs.services import sweep
from liveness.models import Tally
from liveness.services import tokens
from tests.support.http import Caller
from tests.support.processes import eventually
from tests.support.rounds import short_and_long
from tests.support.waiters import count_waiters

SCRIPT = {"type": "script", "command": "true"}


@pytest.fixture
def plane(transactional_db):
    """Return callers: an operator and a client."""
    return Caller(tokens.create_token("boss", "operator")), Caller(tokens.create_token("client", "client"))


def submit(client, number, **fields):
    answer = client.post("/jobs", [{"action": SCRIPT, "unmatched": "wait", **fields}] * number)
    assert answer.status_code == 201, answer.json()


def is_all_done():
    return not WorkerJob.objects.exclude(state="COMPLETED").exists()


class Running:
    """Count of what runs now by tag, kept by the code itself."""

    def __init__(self):
        self._lock, self.now, self.most = threading.Lock(), Counter(), Counter()

    def change(self, tags, by):
        with self._lock:
            for tag in tags:
                self.now[tag] += by
                self.most[tag] = max(self.most[tag], self.now[tag])


def work_off(worker, running, seed, deadline):
    chance = random.Random(seed)
    while not is_all_done() and time.monotonic() < deadline:
        for attempt in worker.claim(limit=chance.randint(1, 5)):
            tags = WorkerJob.objects.get(pk=attempt["job"]["id"]).required_tags
            running.change(tags, 1)
            if chance.random() < 0.2:
                running.change(tags, -1)
                worker.report({"attempt": attempt["id"], "event": "RELEASED", "reason": "fenced"})
                continue
            worker.report({"attempt": attempt["id"], "event": "STARTED"})
            time.sleep(chance.random() / 100)
            running.change(tags, -1)
            worker.report({"attempt": attempt["id"], "event": "COMPLETED"})


def assert_nothing_is_left():
    assert is_all_done(), list(WorkerJob.objects.exclude(state="COMPLETED").values("state", "parked_by", "limits"))
    assert LimitSlot.objects.count() == LimitRecheck.objects.count() == 0
    sweep.run_sweep()
    assert not Tally.objects.filter(name="limit_repairs").exists()


@pytest.mark.parametrize("count", short_and_long(10, 25))
def test_no_rule_is_exceeded_however_many_claim_at_once(plane, committed, threads, count):
    boss, client = plane
    for pattern, allowed in {"namespace:default": 5, "tag:gpu": 2, "tag:big:*": 1}.items():
        assert boss.call("put", f"/limits/{pattern}", {"running": allowed}).status_code == 201
    for tags in [], ["gpu"], ["big:a"], ["big:b"], ["big:a", "gpu"]:
        submit(client, count, tags=tags)
    deadline, running = time.monotonic() + 60, Running()
    crew = [committed(name=f"w{n}", tags=["script", "gpu", "big:a", "big:b"]) for n in range(6)]
    calls = [threads(work_off, worker, running, n, deadline) for n, worker in enumerate(crew)]
    for call in calls:
        call.result(90)
    assert_nothing_is_left()
    assert running.most["script"] <= 5 and running.most["gpu"] <= 2
    assert running.most["big:a"] == running.most["big:b"] == 1


@pytest.mark.parametrize("pattern", ["namespace:default", "tag:script", "action:script"])
@pytest.mark.parametrize("count", short_and_long(60, 150))
def test_a_rule_that_is_set_while_jobs_are_claimed_counts_each_of_them(plane, committed, threads, pattern, count):
    boss, client = plane
    submit(client, count)
    deadline, running = time.monotonic() + 60, Running()
    crew = [committed(name=f"w{n}") for n in range(6)]
    calls = [threads(work_off, worker, running, n, deadline) for n, worker in enumerate(crew)]
    eventually(lambda: Attempt.objects.filter(finished_at__isnull=False).count() > 20, within=30)
    for allowed in 40, 3:
        assert boss.call("put", f"/limits/{pattern}", {"running": allowed}).status_code < 300
        for _ in range(10):
            assert_each_holds_a_slot(pattern)
    while not is_all_done() and time.monotonic() < deadline:
        assert_each_holds_a_slot(pattern)
    for call in calls:
        call.result(90)
    assert_nothing_is_left()


def assert_each_holds_a_slot(key):
    with connection.cursor() as cursor:
        cursor.execute("select (select count(*) from jobs_attempt where finished_at is null),"
                       " (select count(*) from jobs_limitslot where key = %s)", [key])  # fmt: skip
        [[attempts, slots]] = cursor.fetchall()
    assert attempts == slots


@pytest.fixture
def waiting():
    """Return a context in which writes of a table wait. Its value is a cursor for `resume`, which lets them go on."""

    @contextmanager
    def wait(event):
        with connection.cursor() as cursor:
            cursor.execute("select pg_advisory_lock(42)")
            cursor.execute(
                "create or replace function waits() returns trigger language plpgsql as"
                " $$ begin perform pg_advisory_lock_shared(42), pg_advisory_unlock_shared(42); return new; end $$"
            )
            cursor.execute(f"create trigger waits {event} execute function waits()")
            try:
                yield cursor
            finally:
                cursor.execute("select pg_advisory_unlock_all()")
                cursor.execute("drop function waits() cascade")

    return wait


def resume(cursor):
    cursor.execute("select pg_advisory_unlock(42)")


def test_a_new_rule_waits_for_a_claim_that_has_not_committed(plane, committed, threads, waiting):
    """The claim does not see the rule. The rule must see the attempt of the claim."""
    boss, client = plane
    submit(client, 2)
    one, two = committed(name="one"), committed(name="two")
    with waiting("before insert on jobs_attempt for each row") as cursor:
        claim = threads(one.claim, 1)
        eventually(lambda: count_waiters(cursor, "advisory") == 1, within=10)
        rule = threads(boss.call, "put", "/limits/tag:script", {"running": 1})
        eventually(lambda: count_waiters(cursor, "advisory") == 2, within=10)
        resume(cursor)
        [attempt] = claim.result(10)
        assert rule.result(10).status_code == 201
        assert two.claim() == []
    one.start(attempt)
    one.complete(attempt)
    assert len(two.claim()) == 1


def test_a_new_rule_counts_an_attempt_that_is_taken_away_at_this_moment(plane, committed, threads, waiting):
    """The rule finds the attempt live and waits for its job. Then its code still runs, but the job is not held."""
    boss, client = plane
    submit(client, 2)
    one, two = committed(name="one"), committed(name="two")
    held = one.hold()
    with waiting("after update of state on jobs_workerjob for each row when (new.state = 'PENDING')") as cursor:
        move = threads(boss.post, f"/jobs/{held['job']['id']}/resubmit", {"note": "move"})
        eventually(lambda: count_waiters(cursor, "advisory") == 1, within=10)
        rule = threads(boss.call, "put", "/limits/tag:script", {"running": 1})
        eventually(lambda: count_waiters(cursor, "transactionid", "tuple"), within=10)
        resume(cursor)
        assert move.result(10).status_code < 300
        assert rule.result(10).status_code == 201
    assert TakenAttempt.objects.count() == 1
    assert LimitSlot.objects.filter(key="tag:script", attempt_id=held["id"]).count() == 1
    assert two.claim() == []


def test_a_claim_without_rules_by_content_never_calls_their_function(plane, committed):
    boss, client = plane
    boss.call("put", "/limits/a", {"running": 1})
    boss.call("put", "/limits/customer:*", {"running": 1})
    submit(client, 1, limits=["a"])
    with connection.cursor() as cursor:
        cursor.execute("alter function limits_with_rules(jsonb, text, text[], text[]) rename to away")
        cursor.execute(
            "create function limits_with_rules(jsonb, text, text[], text[]) returns jsonb"
            " language plpgsql as $$ begin raise 'called'; end $$"
        )
        try:
            assert len(committed().claim()) == 1
        finally:
            cursor.execute("drop function limits_with_rules(jsonb, text, text[], text[])")
            cursor.execute("alter function away(jsonb, text, text[], text[]) rename to limits_with_rules")
