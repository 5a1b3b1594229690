"""Statements that skip the rows that another transaction has locked, and never wait for them."""

import threading
from contextlib import contextmanager

import pytest
from django.db import connection, transaction

from jobs.models import Execution, LimitRecheck, LimitRule, WorkerJob
from jobs.services import limits, recovery
from jobs.services.liveness_check import check_liveness
from liveness.models import Server
from liveness.services import tokens
from tests.support.http import Caller
from tests.support.transitions import put


@pytest.fixture
def locked(threads):
    """Return a context in which another transaction has locked the rows of a query."""

    @contextmanager
    def lock(rows):
        held, released = threading.Event(), threading.Event()

        def hold():
            with transaction.atomic():
                list(rows.select_for_update())
                held.set()
                released.wait(60)

        holder = threads(hold)
        assert held.wait(30)
        try:
            yield
        finally:
            released.set()
            holder.result(30)

    return lock


@pytest.fixture
def impatient():
    """Let a statement that waits for a lock fail at once."""
    with connection.cursor() as cursor:
        cursor.execute("set lock_timeout = '500ms'")
    yield
    with connection.cursor() as cursor:
        cursor.execute("reset lock_timeout")


def make_silent(*workers):
    ids = [worker.id for worker in workers]
    Server.objects.filter(pk__in=ids).update(heard_observed=-1000, created_observed=-2000)


def test_the_check_disconnects_the_others_while_one_server_is_locked(committed, locked, impatient):
    one, two = committed(name="one"), committed(name="two")
    make_silent(one, two)
    with locked(Server.objects.filter(pk=one.id)):
        check_liveness()
        assert dict(Server.objects.values_list("name", "state")) == {"one": "RUNNING", "two": "DISCONNECTED"}
    check_liveness()
    assert Server.objects.get(pk=one.id).state == "DISCONNECTED"


def test_a_claim_takes_other_jobs_while_one_is_locked(committed, locked, impatient):
    client = Caller(tokens.create_token("submitter", "client"))
    first, second = (client.post("/jobs", {"action": {"type": "script", "command": "true"}}).json() for _ in range(2))
    worker = committed(max_concurrent=9)
    with locked(WorkerJob.objects.filter(pk=first["id"])):
        assert [attempt["job"]["id"] for attempt in worker.claim()] == [second["id"]]
    assert [attempt["job"]["id"] for attempt in worker.claim()] == [first["id"]]


def test_recovery_leaves_a_step_alone_while_the_root_of_its_tree_is_locked(committed, locked, impatient):
    client = Caller(tokens.create_token("submitter", "client"))
    steps = [{"key": "a", "action": {"type": "script", "command": "true"}}]
    run = client.post("/executions", {"name": "nightly", "steps": steps}).json()
    worker = committed(config={"worker_task_restart_strategy": "IMMEDIATELY"})
    worker.hold()
    put(Server.objects.get(pk=worker.id), "ERROR")
    with locked(Execution.objects.filter(pk=run["id"])):
        assert recovery.recover_attempts() == {}
    assert recovery.recover_attempts() == {"RESUBMITTED": 1}


def test_a_settlement_that_holds_the_oldest_notes_does_not_stop_the_others(committed, locked, impatient, monkeypatch):
    client = Caller(tokens.create_token("submitter", "client"))
    LimitRule.objects.bulk_create(LimitRule(namespace="default", pattern=key, running=0) for key in ("a", "b"))
    body = {"action": {"type": "script", "command": "true"}, "unmatched": "wait"}
    assert client.post("/jobs", [body | {"limits": [key]} for key in ("a", "b")]).status_code == 201
    LimitRule.objects.update(running=1)
    LimitRecheck.objects.all().delete()
    LimitRecheck.objects.bulk_create(LimitRecheck(key=key) for key in ("a", "a", "b"))
    monkeypatch.setattr(limits, "KEYS_AT_ONCE", 2)
    with locked(LimitRecheck.objects.filter(key="a")):
        limits.settle_rechecks()
        assert list(WorkerJob.objects.filter(parked_by__isnull=True).values_list("limits", flat=True)) == [{"b": 1}]
    limits.settle_rechecks()
    assert not WorkerJob.objects.filter(parked_by__isnull=False).exists()
