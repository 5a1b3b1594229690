"""Test that API calls leave no garbage for Python's cyclic collector, whose runs would hold up all calls."""

import gc
import json
from contextlib import contextmanager

import pytest
from django.core.signals import request_finished, request_started
from django.db import close_old_connections
from django.test import RequestFactory

from controlplane.serving.answers import answered
from controlplane.wsgi import application

pytestmark = pytest.mark.django_db


@contextmanager
def one_connection():
    """Keep the connection open after a call, like Django's test client: the test's transaction outlives its calls."""
    signals = request_started, request_finished
    for signal in signals:
        signal.disconnect(close_old_connections)
    try:
        yield
    finally:
        for signal in signals:
            signal.connect(close_old_connections)


@pytest.fixture
def garbage():
    """Return a function that counts the garbage of repeated calls, by type."""

    def left_by(do):
        for _ in range(3):
            do()
        gc.collect()
        gc.disable()
        try:
            for _ in range(3):
                do()
            gc.set_debug(gc.DEBUG_SAVEALL)
            gc.collect()
            return [type(left).__qualname__ for left in gc.garbage]
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()

    return left_by


def call(path, token, body=None, status=200):
    """Make a GET, or a POST if there is a body."""
    of_whom = {"headers": {"Authorization": f"Bearer {token}"}}
    make, address = RequestFactory(), f"/api/v1{path}"
    content = json.dumps(body).encode()
    request = (
        make.get(address, **of_whom)
        if body is None
        else make.post(address, content, content_type="application/json", **of_whom)
    )
    with one_connection():
        answer = answered(application, request.environ)
    assert answer.status == status, answer.body
    return json.loads(answer.body)


@pytest.mark.parametrize("number", [1, 50])
def test_a_submission_leaves_no_garbage(garbage, submit, number):
    job = {"action": {"type": "script", "command": "true"}}
    body = [job] * number if number > 1 else job
    assert garbage(lambda: call("/jobs", submit.client.token, body, 201)) == []


def test_a_claim_a_start_and_an_end_leave_no_garbage(garbage, submit, worker):
    for _ in range(6):
        submit()
    server = worker()

    def work():
        (attempt,) = call(f"/servers/{server.id}/claims", server.token, {"limit": 1}, 200)["attempts"]
        events = [{"attempt": attempt["id"], "event": "STARTED"}, {"attempt": attempt["id"], "event": "COMPLETED"}]
        results = call(f"/servers/{server.id}/reports", server.token, {"reports": events}, 200)["results"]
        assert [result["accepted"] for result in results] == [True, True]

    assert garbage(work) == []


def test_who_is_refused_leaves_no_garbage(garbage):
    assert garbage(lambda: call("/jobs", "cp_of-nobody", {}, 401)) == []


@pytest.mark.parametrize("path", ["jobs", "jobs/{job}", "executions", "executions/{execution}"])
def test_what_is_read_leaves_no_row_behind(garbage, submit, worker, api, path):
    for _ in range(3):
        submit()
    server, client = worker(), submit.client.token
    job, *_ = [
        attempt["job"]["id"] for attempt in call(f"/servers/{server.id}/claims", server.token, {"limit": 2})["attempts"]
    ]
    steps = [{"key": key, "action": {"type": "script", "command": "true"}} for key in "ab"]
    execution = call("/executions", client, {"name": "two", "steps": steps}, 201)["id"]
    left = garbage(lambda: call(f"/{path.format(job=job, execution=execution)}", client))
    assert not {"WorkerJob", "Attempt", "Execution", "QuerySet"} & set(left), "they held one another"
