"""The shortcut for plain heartbeats gives the same responses as the normal path, and leaves other heartbeats to it."""

import asyncio
import json
import os
import signal
import threading
from uuid import UUID

import pytest
from django.db import connection, transaction

from controlplane.core.batching import GroupCommit
from controlplane.core.threads import Threads
from jobs.api import shortcut
from jobs.api.shortcut import SMALL_BODY_BYTES
from jobs.services import heartbeats
from jobs.services.heartbeats import PlainHeartbeat
from liveness.models import Heartbeat, Server
from liveness.services import tokens
from tests.support.http import request_of, short_way
from tests.support.processes import eventually
from tests.support.queries import CapturedQueries
from tests.support.transitions import put

RUNNING = {"state": "RUNNING"}


class Way:
    """Sends heartbeats to the shortcut, or builds them for the normal path."""

    def request(self, one, **environ):
        return request_of(
            {
                "REQUEST_METHOD": "POST",
                "PATH_INFO": f"/api/v1/servers/{one.id}/heartbeat",
                "CONTENT_TYPE": "application/json",
                "HTTP_HOST": "testserver",
                "HTTP_AUTHORIZATION": f"Bearer {one.token}",
                **environ,
            }
        )

    def beat(self, one, body=RUNNING, **environ):
        """Return the response of the shortcut, or None if the normal path must handle the heartbeat."""
        answer = short_way(self.request(one, **environ), body if isinstance(body, bytes) else json.dumps(body).encode())
        if answer is None:
            return None
        assert answer.status_code in (200, 503)
        return json.loads(answer.content)

    def plain(self, one):
        return PlainHeartbeat(tokens.read_server_token(one.token), "RUNNING")


@pytest.fixture
def way():
    return Way()


def long_way(one, **fields):
    """Return the response of the normal path to a heartbeat of the same server."""
    return one.beat(**fields, reason="a field that no plain heartbeat has").json()


@pytest.mark.parametrize(
    "column", [{}, {"cordoned_by": "ann"}, {"worker_task_restart_strategy": "NEVER"}, {"state": "MAINTENANCE"}]
)
def test_it_answers_what_the_long_way_answers(way, clock, worker, column):
    one = worker()
    put(Server.objects.get(pk=one.id), column.get("state", "RUNNING"))
    Server.objects.filter(pk=one.id).update(**{name: value for name, value in column.items() if name != "state"})
    assert way.beat(one, {}) == long_way(one)


def test_it_reports_a_drain_maintenance_and_what_to_cancel(way, clock, worker, submit, api):
    submit()
    one = worker()
    attempt = one.hold()
    api("operator").post(f"/servers/{one.id}/drain", {"note": "a new disk", "deadline_seconds": 60})
    api("operator").post("/maintenance/enter", {"note": "a new switch"})
    submit.client.post(f"/jobs/{attempt['job']['id']}/cancel", {})
    answer = way.beat(one)
    assert answer == long_way(one)
    assert answer["cancel"] == [attempt["id"]] and answer["drain"] and answer["maintenance"] and answer["cordoned"]


def test_behind_tls_what_came_in_clear_goes_the_long_way_which_sends_it_to_https(way, worker, settings):
    one = worker()
    settings.SECURE_SSL_REDIRECT = True
    assert way.beat(one) is None
    assert way.beat(one, HTTP_X_FORWARDED_PROTO="https")


def test_it_is_written_like_any_other(way, worker, clock):
    one = worker()
    before, beats = Server.objects.get(pk=one.id), Heartbeat.objects.count()
    clock.advance(5)
    assert way.beat(one, {"state": "RUNNING", "metrics": {"load": 1.5, "running": 3}})
    after = Server.objects.get(pk=one.id)
    assert after.metrics == {"load": 1.5, "running": 3}
    assert after.last_heartbeat_at > before.last_heartbeat_at
    assert after.witnessed_at is None, "a plain beat proves nothing of those that list attempts"
    assert after.heard_observed > before.heard_observed
    assert Heartbeat.objects.count() == beats + 1
    assert way.beat(one, {"state": "RUNNING"})
    assert Server.objects.get(pk=one.id).metrics == {"load": 1.5, "running": 3}, "kept until others come"


def test_it_is_one_round_trip(way, worker):
    one = worker()
    with CapturedQueries(connection) as queries:
        assert way.beat(one)
    assert len(queries) == 1


@pytest.mark.parametrize(
    "body",
    [
        {"state": "TERMINATING"},
        {"state": "MAINTENANCE"},
        {"state": "DISCONNECTED"},
        {"state": "ASLEEP"},
        {"state": None},
        {"state": ["RUNNING"]},
        {"claimed": []},
        {"running": []},
        {"schedulable": False},
        {"reason": ""},
        {"metrics": None},
        {"metrics": {"a": "b"}},
        {"metrics": {"a": True}},
        {"metrics": {"\0": 1}},
        {"metrics": {str(number): 1 for number in range(101)}},
        {"unknown": 1},
        [],
        "RUNNING",
        b"",
        b"{",
        b"\xff",
        b" " * SMALL_BODY_BYTES + b"{}",
    ],
    ids=lambda body: str(body)[:40],
)
def test_a_heartbeat_with_news_or_errors_takes_the_normal_path(way, worker, body):
    one = worker()
    beats = Heartbeat.objects.count()
    assert way.beat(one, body) is None
    assert Heartbeat.objects.count() == beats


def test_at_the_limit_of_its_size_it_is_still_plain(way, worker):
    assert way.beat(worker(), b" " * (SMALL_BODY_BYTES - 2) + b"{}")


@pytest.mark.parametrize(
    "environ",
    [
        {"REQUEST_METHOD": "PUT"},
        {"CONTENT_TYPE": "text/plain"},
        {"HTTP_HOST": "evil.example"},
        {"HTTP_HOST": ""},
        {"HTTP_AUTHORIZATION": ""},
        {"HTTP_AUTHORIZATION": "Basic YTpi"},
        {"HTTP_AUTHORIZATION": "Bearer cps_forged"},
        {"HTTP_AUTHORIZATION": "Bearer cp_of_a_role"},
        {"PATH_INFO": "/api/v1/servers/00000000-0000-7000-8000-000000000000/heartbeat"},
        {"PATH_INFO": "/api/v1/servers/nobody/heartbeat"},
    ],
    ids=str,
)
def test_a_refused_heartbeat_gets_its_error_from_the_normal_path(way, worker, environ):
    assert way.beat(worker(), **environ) is None


@pytest.mark.parametrize("header", ["content-type", "host", "authorization", "x-forwarded-proto"])
def test_a_heartbeat_with_a_repeated_header_takes_the_normal_path(header, way, worker):
    request = way.request(worker(), HTTP_X_FORWARDED_PROTO="https")
    twice = [*request.headers, (header, request.by_name[header])]
    assert shortcut.parse_plain_heartbeat(tokens.ServerToken(UUID(int=1), 1), request.headers, b"{}")
    assert shortcut.parse_plain_heartbeat(tokens.ServerToken(UUID(int=1), 1), twice, b"{}") is None


@pytest.mark.parametrize("state", ["DISCONNECTED", "TERMINATED_GRACEFULLY", "NOT_RUNNING", "INACTIVE"])
def test_who_has_ended_is_not_brought_back(way, worker, state):
    one = worker()
    put(Server.objects.get(pk=one.id), state)
    before = Server.objects.values_list("last_heartbeat_at", "state").get(pk=one.id)
    assert way.beat(one, {}) is None
    assert Server.objects.values_list("last_heartbeat_at", "state").get(pk=one.id) == before


def test_a_revoked_token_is_refused(way, worker):
    one = worker()
    Server.objects.filter(pk=one.id).update(token_version=2)
    assert way.beat(one) is None


def test_of_two_heartbeats_at_once_only_the_plain_one_is_recorded(worker):
    one = worker()
    token = tokens.read_server_token(one.token)
    revoked = tokens.ServerToken(token.server, token.version - 1)
    runs, ends, other, silent = heartbeats.record_plain_heartbeats(
        [
            PlainHeartbeat(token, "RUNNING"),
            PlainHeartbeat(token, "TERMINATING"),
            PlainHeartbeat(revoked, "RUNNING"),
            PlainHeartbeat(token),
        ]
    )
    assert (runs.state, silent.state) == ("RUNNING", "RUNNING")
    assert (ends, other) == (None, None)


def test_a_server_whose_row_is_held_keeps_nobody_waiting(committed, threads):
    held, free = committed(name="held"), committed(name="free")
    with transaction.atomic():
        Server.objects.select_for_update(no_key=True).get(pk=held.id)
        both = [PlainHeartbeat(tokens.read_server_token(one.token), "RUNNING") for one in (held, free)]
        of_held, of_free = threads(heartbeats.record_plain_heartbeats, both).result(10)
    assert (of_held, str(of_free.id)) == (None, free.id)


def test_a_cut_connection_costs_at_most_one_heartbeat(committed, threads):
    one, way = committed(), Way()

    def beats():
        """Send two heartbeats in a thread whose connection is cut before the first."""
        with connection.cursor() as cursor:
            cursor.execute("select pg_backend_pid()")
            (pid,) = cursor.fetchone()
        ended.append(pid)
        cut.wait(10)
        return way.beat(one), way.beat(one)

    ended, cut = [], threading.Event()
    future = threads(beats)
    while not ended:
        assert not future.done(), future.result()
    with connection.cursor() as cursor:
        cursor.execute("select pg_terminate_backend(%s, 5000)", [ended[0]])
    cut.set()
    broken, again = future.result(10)
    # The driver does not always read the reason before it finds the connection closed.
    assert broken.get("state") == "RUNNING" or broken["code"] == "outcome_unknown"
    assert again["state"] == "RUNNING"


def test_a_frozen_backend_costs_those_who_are_in_it_and_nobody_else(committed):
    """SIGSTOP of a PostgreSQL backend: the kernel still acknowledges packets, so no TCP timeout ends the wait."""
    hung, others, way = committed(name="hung"), [committed(name=f"w{number}") for number in range(4)], Way()
    backends, batches, ended = [], [], []

    def answers(beats):
        if not batches:
            with connection.cursor() as cursor:
                cursor.execute("select pg_backend_pid()")
                backends.extend(cursor.fetchone())
            os.kill(backends[0], signal.SIGSTOP)
        batches.append(len(beats))
        try:
            return shortcut.answers(beats)
        finally:
            ended.append(len(beats))

    async def all_of_them():
        hear = GroupCommit(answers, 0.5, Threads(2, "beats", shortcut.let_go_of_connection))
        with pytest.raises(TimeoutError):
            await hear(way.plain(hung))
        for one in others * 25:
            answer = await hear(way.plain(one))
            assert json.loads(answer)["state"] == "RUNNING"

    try:
        asyncio.run(all_of_them())
    finally:
        for pid in backends:
            os.kill(pid, signal.SIGCONT)
    eventually(lambda: len(ended) == len(batches) == 101)
