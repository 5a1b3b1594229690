"""Requests of tasks in a worker's main process: what they report of their end, and that they leave nothing behind."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace

import pytest
from billiard.einfo import ExceptionInfo
from celery import Celery
from celery.exceptions import Ignore
from celery.worker.request import Request, create_request_cls

from controlplane.agent.celery.options import Options
from controlplane.agent.celery.requests import request_class


class Protection:
    """Keeps the lines that are meant for the heart."""

    def __init__(self):
        self.jobs, self.open, self.lines, self.options = None, set(), [], Options(url="", token="")

    def tell(self, *line):
        self.lines.append(line)

    def settled(self, tag):
        self.open.discard(tag)


@pytest.fixture
def protection():
    return Protection()


@pytest.fixture
def make_request(protection):
    app = Celery("orders", set_as_current=False)

    @app.task(name="orders.send", shared=False)
    def send():
        """Send it."""

    app.finalize()

    def make(acks_late):
        task = app.tasks["orders.send"]
        task.acks_late = acks_late
        pool = SimpleNamespace(apply_async=None)
        made = create_request_cls(request_class(Request, protection), task, pool, "here", None, app=app)
        message = SimpleNamespace(
            headers={"id": "a", "task": "orders.send"}, body=b"", payload=((), {}, {}), content_type="application/json",
            content_encoding="utf-8", delivery_tag="tag", delivery_info={}, properties={},
        )  # fmt: skip
        return made(message, app=app, task=task, hostname="here")

    return make


def ends(protection):
    return [line[2] for line in protection.lines if line[0] == "-"]


@pytest.mark.parametrize("acks_late", [True, False])
def test_a_task_that_returns_is_completed_once_whenever_it_is_acknowledged(make_request, protection, acks_late):
    request = make_request(acks_late)
    request.on_accepted(7, 0.0)
    if not acks_late:
        request.acknowledge()
    request.on_success((False, "done", 0.1))
    assert ends(protection) == ["COMPLETED"]


@pytest.mark.parametrize("acks_late", [True, False])
def test_a_task_that_is_to_be_ignored_has_not_failed_whenever_it_is_acknowledged(make_request, protection, acks_late):
    request = make_request(acks_late)
    request.on_accepted(7, 0.0)
    if not acks_late:
        request.acknowledge()
    try:
        raise Ignore
    except Ignore:
        problem = ExceptionInfo(internal=True)
    request.on_success((True, problem, 0.1))
    assert ends(protection) == ["COMPLETED"]


def test_a_request_is_freed_with_its_last_reference(make_request):
    gc.collect()
    gc.disable()
    try:
        seen = weakref.ref(make_request(acks_late=True))
        assert seen() is None
    finally:
        gc.enable()
