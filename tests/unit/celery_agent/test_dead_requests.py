"""Dead requests: they fill all places of a worker, and no process runs them."""

from types import SimpleNamespace

import pytest
from celery.worker import state

from controlplane.agent.celery.worker.dead_requests import count_dead


class Request:
    def __init__(self, pid):
        self.worker_pid = pid


@pytest.fixture
def consumer(monkeypatch):
    """Return a consumer whose pool has the living process 7 and the ended process 8."""
    for name in ("active_requests", "scheduled_requests"):
        monkeypatch.setattr(state, name, set())
    monkeypatch.setattr(state, "requests", {"a": Request(8)})
    processes = [SimpleNamespace(pid=7, exitcode=None), SimpleNamespace(pid=8, exitcode=1)]
    return SimpleNamespace(task_buckets={"t": None}, pool=SimpleNamespace(_pool=SimpleNamespace(_pool=processes)))


def test_requests_that_no_process_runs_are_dead(consumer):
    assert count_dead(consumer) == 1
    state.active_requests.add(Request(8))
    assert count_dead(consumer) == 1


def test_no_request_is_dead_while_a_process_runs_one(consumer):
    state.active_requests.add(Request(7))
    assert count_dead(consumer) == 0


def test_no_request_is_dead_while_one_waits_for_its_eta(consumer):
    state.scheduled_requests.add(Request(None))
    assert count_dead(consumer) == 0


def test_no_request_is_dead_while_a_rate_limit_holds_one(consumer):
    consumer.task_buckets["t"] = SimpleNamespace(contents=[object()])
    assert count_dead(consumer) == 0


def test_in_a_pool_without_processes_every_active_request_runs(consumer):
    consumer.pool = SimpleNamespace()
    assert count_dead(consumer) == 1
    state.active_requests.add(Request(None))
    assert count_dead(consumer) == 0
