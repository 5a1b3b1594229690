"""Answers and signals at the same time as other calls, with real commits and connections."""

import pytest
from django.db import transaction

from jobs.execution_errors import AlreadyAnswered
from jobs.models import WorkerJob
from jobs.services import approvals, signals, waits
from liveness.models import ApiToken
from liveness.services import tokens
from tests.integration.races import test_hot_paths as hot
from tests.support.executions import Run
from tests.support.http import Caller
from tests.support.waits import approval, wait


@pytest.fixture
def begin(transactional_db):
    client = Caller(tokens.create_token("a client", "client"))

    def begin(*steps):
        return Run(client, client.post("/executions", {"name": "x", "steps": list(steps)}).json()["id"])

    return begin


def answer(job, choice):
    try:
        approvals.answer_step(job, choice, {}, by=f"operator:{choice}", groups=None)
    except AlreadyAnswered as refused:
        return refused.facts["choice"]


def test_of_two_answers_at_once_exactly_one_wins(begin, threads):
    run = begin(approval("ok"))
    job = run.step("ok")["job"]
    with transaction.atomic():
        assert answer(job, "approve") is None
        later = threads(answer, job, "reject")
        assert hot.someone_waits()
    assert later.result(10) == "approve"
    assert (run.state, run.step("ok")["output"]["by"]) == ("COMPLETED", "operator:approve")


def test_a_signal_that_is_sent_while_its_step_begins_is_not_lost(begin, threads):
    def send():
        signals.send_signal(ApiToken.objects.get(name="a client"), "paid", 1, namespace="default")
        return waits.deliver_signals()

    with transaction.atomic():
        run = begin(wait("paid", signal="paid"))
        assert threads(send).result(10) == {}
    assert waits.end_waits() == {"COMPLETED": 1}
    assert run.step("paid")["output"] == 1


def test_a_step_that_begins_while_its_signal_is_sent_gets_it(begin, threads):
    run = begin(wait("paid", signal="paid"))
    with transaction.atomic():
        signals.send_signal(ApiToken.objects.get(name="a client"), "paid", 1, namespace="default")
        assert threads(waits.end_waits).result(10) == {}
    assert waits.end_waits() == {"COMPLETED": 1}
    assert run.state == "COMPLETED"


def test_a_signal_for_a_locked_tree_is_delivered_by_the_next_tick(begin, threads):
    run = begin(wait("one", signal="paid"), approval("two"))
    job = WorkerJob.objects.get(step="two").pk
    signals.send_signal(ApiToken.objects.get(name="a client"), "paid", 1, namespace="default")
    with transaction.atomic():
        assert answer(job, "approve") is None
        assert threads(waits.end_waits).result(10) == {}
    assert waits.end_waits() == {"COMPLETED": 1}
    assert run.state == "COMPLETED"
