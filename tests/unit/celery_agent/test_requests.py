"""Requests of tasks in a worker's main process: what they report of their end, and that they leave nothing behind."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace

import pytest
from billiard.einfo import ExceptionInfo
from celery import Celery
from celery.exceptions import Ignore
from celery.worker import state
from celery.worker.request import Request, create_request_cls
from kombu import Connection

from controlplane.agent.celery.heart.task_records import TaskRecords
from controlplane.agent.celery.messages import TaskEnded, TaskHeld, TaskRunning
from controlplane.agent.celery.options import CeleryOptions
from controlplane.agent.celery.worker.context import WorkerContext
from controlplane.agent.celery.worker.kept_ends import KEPT_AFTER
from controlplane.agent.celery.worker.requests import _text, request_class
from controlplane.agent.celery.worker.settlement import Settlement
from controlplane.agent.celery.worker.task_list import list_tasks


@pytest.fixture
def sent():
    """Return the messages for the heart process."""
    return []


@pytest.fixture
def make_request(sent):
    app = Celery("orders", set_as_current=False)
    worker = SimpleNamespace(app=app)
    context = WorkerContext(worker, CeleryOptions(), "me", "memory", Connection("memory://"), sent.append)
    settlement = Settlement(context, early=None)

    @app.task(name="orders.send", shared=False)
    def send():
        """Send it."""

    app.finalize()

    def make(acks_late):
        task = app.tasks["orders.send"]
        task.acks_late = acks_late
        pool = SimpleNamespace(apply_async=None)
        made = create_request_cls(request_class(Request, context, settlement, None), task, pool, "here", None, app=app)
        message = SimpleNamespace(
            headers={"id": "a", "task": "orders.send"}, body=b"", payload=((), {}, {}), content_type="application/json",
            content_encoding="utf-8", delivery_tag="tag", delivery_info={}, properties={},
        )  # fmt: skip
        return made(message, app=app, task=task, hostname="here")

    return make


def ends(sent):
    return [message.outcome for message in sent if isinstance(message, TaskEnded)]


@pytest.mark.parametrize("acks_late", [True, False])
def test_a_task_that_returns_completes_once_with_early_and_late_acks(make_request, sent, acks_late):
    request = make_request(acks_late)
    request.on_accepted(7, 0.0)
    if not acks_late:
        request.acknowledge()
    request.on_success((False, "done", 0.1))
    assert ends(sent) == ["COMPLETED"]


@pytest.mark.parametrize("acks_late", [True, False])
def test_an_ignored_task_has_not_failed_with_early_and_late_acks(make_request, sent, acks_late):
    request = make_request(acks_late)
    request.on_accepted(7, 0.0)
    if not acks_late:
        request.acknowledge()
    try:
        raise Ignore
    except Ignore:
        problem = ExceptionInfo(internal=True)
    request.on_success((True, problem, 0.1))
    assert ends(sent) == ["COMPLETED"]


def test_a_new_heart_gets_a_task_with_acks_late_false_until_its_end_is_sent(make_request, monkeypatch):
    request = make_request(acks_late=False)
    monkeypatch.setattr(state, "requests", {"a": request})
    request.on_accepted(7, 1.0)
    request.acknowledge()
    held, running = list_tasks(request.context.ends)
    assert (held.tag, held.acks_late, running.pid) == (request.tag, False, 7)
    request.since -= KEPT_AFTER
    request.on_success((False, "done", 0.1))
    again = list(list_tasks(request.context.ends))
    assert [type(message) for message in again] == [TaskHeld, TaskRunning, TaskEnded]
    assert again[0].held_for >= KEPT_AFTER and again[-1].kept_attempt == request.attempt


def test_a_new_heart_gets_a_task_on_its_way_to_a_child_as_running(make_request, monkeypatch):
    request = make_request(acks_late=True)
    monkeypatch.setattr(state, "requests", {"a": request})
    request.record_given()
    assert list(list_tasks(request.context.ends))[-1] == TaskRunning(request.tag, None)


def test_a_kept_end_hides_no_later_delivery_with_the_same_tag(make_request, monkeypatch):
    request = make_request(acks_late=True)
    monkeypatch.setattr(state, "requests", {"a": request})
    before = request.held._replace(attempt="before")
    request.context.ends.keep(before, TaskEnded(request.tag, "LOST"), request.since, has_started=True)
    records = TaskRecords()
    for message in list_tasks(request.context.ends):
        records.read(message)
    assert records.ids_of([request.attempt]) == ["a"]


def test_a_requeued_message_that_comes_back_with_its_tag_is_open_and_not_done(make_request):
    first, again = make_request(acks_late=True), make_request(acks_late=True)
    again.tag = first.tag  # as on Redis
    again.context.record_received(again.tag, again.attempt)
    first.on_reject = lambda *_: None
    first.reject(requeue=True)
    assert first.context.open[first.tag] == again.attempt and first.tag not in first.context.done


def test_the_heart_learns_which_requests_are_forgotten_with_a_connection(make_request, sent, monkeypatch):
    runs, waits, in_pool = (make_request(acks_late=True) for _ in range(3))
    monkeypatch.setattr(state, "active_requests", {runs})
    runs.context.in_pool.add(in_pool)
    assert runs.context.keep_running_requests() == [runs, in_pool]
    assert sent[-1] == TaskEnded(waits.tag, "RETURNED") and list(runs.context.open) == [runs.tag, in_pool.tag]


def test_a_request_is_freed_with_its_last_reference(make_request):
    gc.collect()
    gc.disable()
    try:
        seen = weakref.ref(make_request(acks_late=True))
        assert seen() is None
    finally:
        gc.enable()


def test_the_error_of_a_task_masks_passwords_in_addresses():
    error = ConnectionError("cannot reach postgresql://user:hunter2@db.example.org/shop")
    assert _text(SimpleNamespace(exception=error)) == (
        "ConnectionError: cannot reach postgresql://user:***@db.example.org/shop"
    )
