"""Fair keys under many submissions and claims at the same time, with real commits and connections."""

import random
import time

import pytest
from django.db import connection

from jobs.models import FairTurn, LimitRecheck, LimitSlot, WorkerJob
from jobs.services import limits
from liveness.services import tokens
from tests.support.http import Caller
from tests.support.processes import eventually

KEYS = [f"customer:{letter}" for letter in "abcde"]


@pytest.fixture
def client(transactional_db):
    operator = Caller(tokens.create_token("boss", "operator"))
    assert operator.call("put", "/limits/customer:*", {"fair": True}).status_code == 201
    return Caller(tokens.create_token("client", "client"))


def submit_lists(client, seed):
    chance = random.Random(seed)
    for _ in range(12):
        # The keys come in any order, and jobs with several keys belong to several turns.
        bodies = [
            {"action": {"type": "script", "command": "true"}, "unmatched": "wait", "priority": chance.randint(0, 1),
             "limits": chance.sample(KEYS, chance.randint(0, 3)), "key": f"{seed} {chance.random()}"}
            for _ in range(chance.randint(1, 8))
        ]  # fmt: skip
        assert client.post("/jobs", bodies).status_code == 201


def work_off(worker, submissions, deadline):
    while time.monotonic() < deadline:
        is_last = all(submission.done() for submission in submissions)
        attempts = worker.claim(limit=3)
        for attempt in attempts:
            worker.report({"attempt": attempt["id"], "event": "STARTED"})
            worker.report({"attempt": attempt["id"], "event": "COMPLETED"})
        if is_last and not attempts and not WorkerJob.objects.exclude(state="COMPLETED").exists():
            return


def ask(question):
    with connection.cursor() as cursor:
        cursor.execute(f"select {question} and datname = current_database()")
        return cursor.fetchone()[0]


def deadlocks():
    return ask("deadlocks from pg_stat_database where true")


def end_other_sessions():
    """End the sessions of earlier tests, because a session may count its deadlocks only when it ends."""
    connection.close()
    connection.close_pool()
    eventually(lambda: ask("count(*) from pg_stat_activity where backend_type = 'client backend'") == 1)


def test_many_submissions_and_claims_leave_no_job_behind(client, committed, threads):
    end_other_sessions()
    before = deadlocks()
    submissions = [threads(submit_lists, client, seed) for seed in range(3)]
    deadline = time.monotonic() + 60
    workers = [threads(work_off, committed(name=f"w{n}"), submissions, deadline) for n in range(3)]
    for call in submissions + workers:
        call.result(90)
    limits.settle_left()
    assert deadlocks() == before
    assert not WorkerJob.objects.exclude(state="COMPLETED").exists()
    assert LimitSlot.objects.count() == LimitRecheck.objects.count() == 0
    with_turn = WorkerJob.objects.filter(turn__gt=0)
    assert with_turn.count() == WorkerJob.objects.exclude(limits=None).count()
    highest = {row.priority: row.turn for row in FairTurn.objects.filter(key="")}
    assert all(job.turn <= highest[job.priority] for job in with_turn)
