"""Hints that there is work: the response to a server, what one search finds, and which listeners are notified."""

import json
import threading
from uuid import UUID

import pytest
from django.db import connection, transaction

from controlplane.core import notifications
from controlplane.core.long_polls import NOT_YET
from controlplane.core.notifications import Announcer, Listener
from jobs.api.hints import TAGS
from jobs.models import WorkerJob
from jobs.services import hints
from liveness.models import Server
from tests.support.http import Caller
from tests.support.processes import eventually


def hint(one, query=""):
    return Caller(one.token).get(f"/servers/{one.id}/hints{query}")


def test_without_work_the_response_has_the_tags_and_how_long_it_may_wait(worker):
    one = worker(tags=["script", "größe"])
    answer = hint(one, "?wait=50")
    assert (answer.json(), answer[NOT_YET]) == ({"work": False}, "50")
    assert set(json.loads(answer[TAGS])) == {"script", "größe"}
    answer = hint(one)
    assert answer.json() == {"work": False} and NOT_YET not in answer and TAGS not in answer


def test_with_work_for_its_tags_the_response_comes_at_once(worker, submit):
    one, other = worker(tags=["script", "gpu"]), worker(tags=["script"])
    submit(tags=["gpu"])
    answer = hint(one, "?wait=50")
    assert answer.json() == {"work": True} and NOT_YET not in answer
    assert hint(other).json() == {"work": False}


def test_it_is_one_question(worker, django_assert_num_queries):
    one = worker()
    with django_assert_num_queries(1):
        hint(one, "?wait=50")


@pytest.mark.parametrize("query", ["?wait=61", "?wait=-1", "?wait=x", "?x=1"])
def test_a_wrong_query_is_a_400(worker, query):
    assert hint(worker(), query).status_code == 400


def test_a_revoked_server_is_refused(worker):
    one = worker()
    Server.objects.filter(pk=one.id).update(token_version=2)
    answer = hint(one)
    assert (answer.status_code, answer.json()["code"]) == (401, "token_revoked")


OFFER = ("default", ["gpu", "later", "script"])


def counted(most=1000):
    return sorted(
        (tuple(row.tags), len(row.refused_by), len(row.jobs)) for row in hints.list_claimable_jobs(most, [OFFER])
    )


def test_one_look_finds_what_can_be_claimed_now_by_tags_up_to_a_limit(worker, submit, clock):
    for tags in (["gpu"], ["gpu"], []):
        submit(tags=tags)
    later = submit(tags=["later"])["id"]
    WorkerJob.objects.filter(pk=later).update(available_at="2100-01-01T00:00:00Z")
    assert counted() == [(("gpu", "script"), 0, 2), (("script",), 0, 1)]
    one = worker(tags=["gpu", "script"])
    one.hold()
    assert sum(jobs for _, _, jobs in counted()) == 2
    submit(tags=["gpu"])
    assert [jobs for _, _, jobs in counted(1)] == [1, 1]


def test_the_loads_are_those_of_eligible_workers_with_room_and_some_others(worker, submit, clock, monkeypatch):
    def loads(*servers):
        rows = hints.read_worker_loads([UUID(one.id) for one in servers])
        return {str(row.server): (row.held, row.slots) for row in rows}

    half, full = worker(name="half", max_concurrent=2), worker(name="full", max_concurrent=1)
    for one in (half, full):
        submit()
        one.hold()
    cordoned, other = worker(name="cordoned"), worker(name="other", max_concurrent=4)
    Server.objects.filter(pk=cordoned.id).update(cordoned_by="operator:o", cordon_reason="disk")
    assert loads(half, full, cordoned) == {half.id: (1, 2), other.id: (0, 4)}
    monkeypatch.setattr(hints, "OTHERS_LIMIT", 0)
    assert loads(half) == {half.id: (1, 2)}
    clock.advance(3600)
    half.beat()
    assert loads(half, other) == {half.id: (1, 2)}


class Heard:
    def __init__(self):
        self.times, self.lock = 0, threading.Lock()

    def __call__(self, content):
        with self.lock:
            self.times += 1


@pytest.fixture
def listener(transactional_db, monkeypatch):
    monkeypatch.setattr(notifications, "RECONNECT_AFTER", 0.01)
    monkeypatch.setattr(notifications, "PATIENCE", 0.05)
    callback = Heard()
    listening = Listener("test_channel", callback)
    listening.start()
    eventually(lambda: callback.times, why="it listens")
    yield callback
    listening.close()
    listening.join(10)
    assert not listening.is_alive()


def notify():
    with connection.cursor() as cursor:
        cursor.execute("select pg_notify('test_channel', '')")


def test_a_listener_gets_notifications_also_after_its_connection_was_cut(listener):
    before = listener.times
    notify()
    eventually(lambda: listener.times > before, why="it was heard")
    before = listener.times
    with connection.cursor() as cursor:
        cursor.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where application_name = 'controlplane listener' and datname = current_database()"
        )
    eventually(lambda: listener.times > before, why="it says that it may have missed some")
    before = listener.times
    notify()
    eventually(lambda: listener.times > before, why="it is heard again")


def test_work_is_announced_once_after_the_commit_and_only_while_serving(transactional_db, monkeypatch):
    announcer = Announcer("test_channel")
    announcer._process = -1
    wanted = []
    monkeypatch.setattr(announcer, "_want", lambda: wanted.append(True))
    announcer.announce()
    assert not wanted, "commands announce nothing"
    announcer.enabled = True
    with transaction.atomic():
        announcer.announce()
        assert not wanted
    assert wanted == [True]
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        announcer.announce()
        raise ZeroDivisionError
    assert wanted == [True]


@pytest.fixture
def announced(monkeypatch):
    """Return how often work was announced."""
    calls = []
    monkeypatch.setattr(hints.announcer, "enabled", True)
    monkeypatch.setattr(hints.announcer, "_want", lambda: calls.append(True))
    return calls


def test_whatever_makes_a_job_wait_is_announced(
    announced, submit, worker, begin, api, clock, django_capture_on_commit_callbacks
):
    def announces(act):
        with django_capture_on_commit_callbacks(execute=True):
            result = act()
        number = len(announced)
        announced.clear()
        return bool(number), result

    one = worker()
    assert announces(submit)[0]
    held = one.hold()
    assert not announces(lambda: one.report({"attempt": held["id"], "event": "STARTED"}))[0]
    assert announces(lambda: one.report({"attempt": held["id"], "event": "RELEASED", "reason": "drain"}))[0]
    held = one.hold()
    job = held["job"]["id"]
    assert announces(lambda: submit.client.post(f"/jobs/{job}/resubmit", {}))[0]
    steps = [
        {"key": "a", "action": {"type": "script", "command": "true"}},
        {"key": "b", "action": {"type": "script", "command": "true"}, "depends_on": ["a"]},
    ]
    assert announces(lambda: begin(*steps))[0]
