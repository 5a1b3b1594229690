"""Processes of the control plane as servers. They send heartbeats through the service layer, whatever fails."""

import os
import socket
from concurrent.futures import ThreadPoolExecutor
from threading import Event, current_thread
from threading import enumerate as list_threads
from unittest.mock import Mock
from uuid import uuid4

import pytest
from django.db import OperationalError, connection, connections
from structlog.testing import capture_logs

from controlplane.agent.api.client import AgentClient, Refused, Unreachable
from controlplane.observability import presence as own
from controlplane.observability.presence import PresenceThread
from jobs.services.liveness_check import check_liveness
from liveness.conf import witness_window
from liveness.models import OWN_DIGEST, ApiToken, Server, ServerEvent
from liveness.models import Clock as ClockRow
from liveness.services.presence import Presence
from liveness.states import ServerState, ServerType
from tests.support.http import Caller
from tests.support.processes import eventually
from tests.support.transitions import put

URL = "http://control.example"
ITSELF = "http://127.0.0.1:8000"


@pytest.fixture(autouse=True)
def no_thread_outlives_its_test(monkeypatch):
    """Join presence threads, because at its end a thread would close the connection of the next test."""
    yield
    left = [thread for thread in list_threads() if thread.name.startswith("presence")]
    for thread in left:
        thread.join(30)
    assert not [thread for thread in left if thread.is_alive()]


@pytest.fixture
def web(db):
    one = Presence(ServerType.WEBSERVER, "web@here-1", "1.2")
    one.beat()
    return one


@pytest.fixture
def over_http(monkeypatch):
    """Send the posts of an agent's client through Django, and return the called paths."""
    called = []

    def post(self, path, body, token, within=None):
        called.append(self.base + path)
        answer = Caller(token).post(path, body)
        if answer.status_code >= 400:
            raise Refused(answer.status_code, answer.json()["code"], answer.json()["detail"])
        return answer.json()

    monkeypatch.setattr(AgentClient, "post", post)
    return called


def stored(presence):
    return Server.objects.get(pk=presence.server.id)


def states(server):
    return list(ServerEvent.objects.filter(server_id=server.pk).values_list("to_state", flat=True))


def test_processes_of_one_instance_are_one_server_also_after_it_was_given_up(db):
    instance = uuid4()
    one, other = (Presence(ServerType.EXECUTOR, "executor@here-7", instance_id=instance, pid=7) for _ in range(2))
    for process in (one, other):
        process.beat()
    assert one.server.id == other.server.id and stored(one).pid == 7
    put(stored(one), "DISCONNECTED")
    for process in (one, other):
        process.beat()
    assert one.server.id == other.server.id != Server.objects.get(state="DISCONNECTED").pk


@pytest.mark.parametrize("type", [ServerType.WEBSERVER, ServerType.EXECUTOR, ServerType.SCHEDULER])
def test_a_process_registers_with_its_first_beat_and_is_running(db, type):
    one = Presence(type, "a name", "1.2")
    assert one.beat() == 3
    server = stored(one)
    assert (server.type, server.name, server.version, server.state) == (type, "a name", "1.2", "RUNNING")
    assert (server.hostname, server.pid) == (socket.gethostname(), os.getpid())
    assert server.last_heartbeat_at is not None


@pytest.mark.parametrize("itself", [None, lambda: AgentClient(ITSELF)], ids=["directly", "over HTTP"])
def test_it_reports_the_cpu_and_memory_of_its_process(db, over_http, itself):
    Presence(ServerType.WEBSERVER, "web@here-1", itself=itself).beat()
    metrics = Server.objects.get().metrics
    assert metrics["process_memory_mib"] > 10 and metrics["process_cpu_percent"] >= 0
    assert 0 < metrics["memory_percent"] <= 100 and 0 <= metrics["cpu_percent"] <= 100, "those of its machine"


def test_the_second_beat_registers_nothing(web, clock):
    before = stored(web).last_heartbeat_at
    clock.advance(3)
    web.beat()
    assert Server.objects.count() == 1
    assert (stored(web).last_heartbeat_at - before).total_seconds() >= 3


def test_all_own_processes_share_one_token_that_nobody_can_present(web, api):
    Presence(ServerType.SCHEDULER, "scheduler@here").beat()
    token = ApiToken.objects.get(digest=OWN_DIGEST)
    assert set(Server.objects.values_list("token", flat=True)) == {token.pk}
    assert len(token.digest) != 32, "no SHA-256 is like that"


def itself():
    """Return the client with which a web process calls itself."""
    return AgentClient(ITSELF)


@pytest.mark.parametrize(
    ("type", "url", "called"),
    [
        (ServerType.WEBSERVER, None, ITSELF),
        (ServerType.WEBSERVER, URL, None),
        (ServerType.EXECUTOR, None, None),
        (ServerType.EXECUTOR, URL, URL),
        (ServerType.SCHEDULER, None, None),
        (ServerType.SCHEDULER, URL, None),
    ],
)
def test_who_proves_that_heartbeats_get_in(clock, settings, over_http, type, url, called):
    settings.LIVENESS = {"WITNESS_URL": url}
    one = Presence(type, "one", itself=itself if type == ServerType.WEBSERVER else None)
    one.beat()
    assert stored(one).state == "RUNNING"
    assert (stored(one).witnessed_at is not None) == (called is not None)
    assert over_http == ([f"{called}/api/v1/servers/{one.server.id}/heartbeat"] * 2 if called else [])


def test_a_witness_sends_all_kinds_of_heartbeats_and_the_last_proves_the_first(clock, over_http, monkeypatch):
    one = Presence(ServerType.WEBSERVER, "web@here-1", itself=itself)
    one.beat()
    bodies = []

    def unheard(self, path, body, token, within=None):
        bodies.append(body)
        raise Unreachable("nobody answers")

    before = stored(one).witnessed_at
    monkeypatch.setattr(AgentClient, "post", unheard)
    with pytest.raises(Unreachable):
        one.beat()
    assert [body.keys() for body in bodies] == [{"state", "metrics"}], (
        "the plain beat was not heard, so nothing is witnessed"
    )
    assert stored(one).witnessed_at == before


@pytest.mark.parametrize("body", [{}, {"state": "RUNNING"}, {"claimed": []}, {"running": []}])
def test_no_worker_proves_that_heartbeats_get_in(worker, clock, body):
    one = worker(type="WEBSERVER", name="web@forged")
    for _ in range(3):
        clock.step(10)
        assert one.beat(**body).status_code == 200
        check_liveness()
    assert ClockRow.objects.get().witnessed is False


def test_a_witness_beats_twice_in_the_window_that_it_is_to_be_seen_in(clock, settings, over_http):
    settings.LIVENESS = {"TIMEOUT": 40, "HEARTBEAT_INTERVAL": 20, "INTERVAL": 5}
    one = Presence(ServerType.WEBSERVER, "web@here-1", itself=itself)
    assert one.beat() == witness_window() / 2 == 5
    assert Presence(ServerType.SCHEDULER, "beat").beat() == 20


def test_leaving_writes_both_events(web):
    web.leave()
    assert states(stored(web)) == ["RUNNING", "TERMINATING", "TERMINATED_GRACEFULLY"]


def test_an_executor_leaves_without_the_web_processes(db, settings, over_http):
    settings.LIVENESS = {"WITNESS_URL": URL}
    one = Presence(ServerType.EXECUTOR, "executor@here")
    one.beat()
    one.beat(ServerState.TERMINATING)
    assert len(over_http) == 4
    one.leave()
    assert len(over_http) == 4
    assert states(stored(one)) == ["RUNNING", "TERMINATING", "TERMINATED_GRACEFULLY"]


def test_who_never_registered_leaves_without_a_word(db):
    Presence(ServerType.WEBSERVER, "web@here-1").leave()
    assert not Server.objects.exists()


@pytest.mark.parametrize("url", [None, URL])
@pytest.mark.parametrize("end", ["DISCONNECTED", "NOT_RUNNING", "INACTIVE", "revoked", "purged"])
def test_one_that_was_found_dead_is_a_new_server_with_its_next_beat(db, settings, over_http, end, url):
    settings.LIVENESS = {"WITNESS_URL": url}
    one = Presence(ServerType.EXECUTOR, "executor@here")
    one.beat()
    first = stored(one)
    if end == "purged":
        Server.objects.all().delete()
    elif end == "revoked":
        Server.objects.update(token_version=2)
    else:
        put(first, end)
    with capture_logs() as logs:
        one.beat()
    assert stored(one).pk != first.pk
    assert stored(one).state == "RUNNING"
    (line,) = [line for line in logs if "registers again" in line["event"]]
    assert (line["log_level"], line["was"]) == ("warning", str(first.pk))
    if end not in ("revoked", "purged"):
        assert Server.objects.get(pk=first.pk).state == end


def test_one_that_is_ending_is_not_born_again(web, monkeypatch):
    monkeypatch.setattr(own, "connection", Mock())
    put(stored(web), "NOT_RUNNING")
    pulse = PresenceThread(web)
    pulse.state = ServerState.TERMINATING
    pulse.beat_once()
    assert Server.objects.count() == 1


def test_a_registration_that_was_given_up_unheard_is_not_asked_for_again(db, monkeypatch):
    one = Presence(ServerType.WEBSERVER, "web@here-1")
    one.register()
    put(stored(one), "NOT_RUNNING")
    one.server = None
    pulse = PresenceThread(one)
    monkeypatch.setattr(own, "connection", Mock())
    pulse.beat_once()
    assert pulse.failures == 1
    pulse.beat_once()
    assert pulse.failures == 0
    assert stored(one).state == "RUNNING"


def test_when_the_token_of_own_processes_is_revoked_they_stay_unheard(db, monkeypatch):
    monkeypatch.setattr(own, "connection", Mock())
    Presence(ServerType.WEBSERVER, "web@here-1").beat()
    ApiToken.objects.update(revoked_at="2026-01-01T00:00Z")
    pulse = PresenceThread(Presence(ServerType.WEBSERVER, "web@here-2"))
    pulse.beat_once()
    pulse.beat_once()
    assert pulse.failures == 2
    assert Server.objects.count() == 1


class Failing(Presence):
    """Presence whose heartbeats fail with the given errors, one after the other."""

    def __init__(self, *failures):
        super().__init__(ServerType.WEBSERVER, "web@here-1")
        self.failures = list(failures)

    def beat(self, state=ServerState.RUNNING):
        if failure := self.failures.pop(0):
            raise failure
        return 3.0


@pytest.fixture
def compared(monkeypatch):
    """Replace the comparison of the timeline before each heartbeat, which needs a database."""
    comparison = Mock()
    monkeypatch.setattr(own.failover, "compare_timeline", comparison)
    return comparison


@pytest.mark.parametrize("where", ["in the comparison", "in the heartbeat"])
@pytest.mark.parametrize(
    "failure",
    [OperationalError("connection refused\nIs the server running?"), Unreachable("no route"), ValueError("a fault")],
)
def test_an_outage_is_logged_once_and_again_when_it_ends(monkeypatch, compared, failure, where):
    closed, failures = Mock(), [failure, failure, failure, None, None]
    monkeypatch.setattr(own, "connection", closed)
    if where == "in the comparison":
        compared.side_effect, failures = failures, [None, None]
    pulse = PresenceThread(Failing(*failures))
    with capture_logs() as logs:
        pauses = [pulse.beat_once() for _ in range(5)]
    assert [(line["log_level"], line["event"]) for line in logs] == [
        ("error", "web@here-1 cannot heartbeat"),
        ("info", "web@here-1 sends heartbeats again"),
    ]
    assert logs[0]["error"] == str(failure).split("\n")[0]
    assert logs[0]["exc_info"] == isinstance(failure, ValueError)
    assert all(0 <= pause <= (45 - 3) / 3 for pause in pauses[:3])
    assert pauses[3:] == [3.0, 3.0]
    assert closed.close.call_count == 3


def test_a_connection_that_cannot_even_be_closed_is_endured(monkeypatch, compared):
    monkeypatch.setattr(own, "connection", Mock(close=Mock(side_effect=OperationalError("gone"))))
    assert PresenceThread(Failing(OperationalError("gone"))).beat_once() >= 0


def test_the_thread_can_be_stopped_even_in_an_outage(monkeypatch, compared):
    monkeypatch.setattr(own, "use_connection_of_its_own", Mock())
    monkeypatch.setattr(own, "connection", Mock())
    one = Failing(*[OperationalError("down")] * 1000)
    one.leave = Mock(side_effect=OperationalError("down"))
    pulse = PresenceThread(one)
    pulse.start()
    pulse.leave()
    assert not pulse.is_alive()
    one.leave.assert_called_once()


def test_a_beat_that_hangs_is_followed_by_those_of_another_thread(monkeypatch, settings, compared):
    settings.LIVENESS = {"TIMEOUT": 0.4, "HEARTBEAT_INTERVAL": 0.1, "INTERVAL": 0.1}
    monkeypatch.setattr(own, "use_connection_of_its_own", Mock())
    monkeypatch.setattr(own, "connection", Mock())
    ends, others, hung = Event(), Event(), []

    class Hanging(Failing):
        def beat(self, state=ServerState.RUNNING):
            if not hung:
                hung.append(current_thread())
                assert ends.wait(30)
            others.set() if current_thread() is not hung[0] else late.append(1)
            return 0.01

    late = []
    one = Hanging()
    one.leave = Mock()
    pulse = PresenceThread(one)
    pulse.start()
    try:
        assert others.wait(30)
        ends.set()
        hung[0].join(30)
        assert not hung[0].is_alive() and late == [1], "it says no more once it goes on"
    finally:
        ends.set()
        pulse.leave()
    one.leave.assert_called_once()


def test_while_all_that_it_begins_hangs_it_begins_no_third(monkeypatch, settings, compared):
    settings.LIVENESS = {"TIMEOUT": 0.4, "HEARTBEAT_INTERVAL": 0.1, "INTERVAL": 0.1}
    monkeypatch.setattr(own, "use_connection_of_its_own", Mock())
    monkeypatch.setattr(own, "connection", Mock())
    ends, hung = Event(), []

    class Hanging(Failing):
        def beat(self, state=ServerState.RUNNING):
            hung.append(current_thread())
            assert ends.wait(30)
            return 3.0

    one = Hanging()
    one.leave = Mock()
    pulse = PresenceThread(one)
    looked, wait = [], pulse.ending.wait
    monkeypatch.setattr(pulse.ending, "wait", lambda timeout: looked.append(len(hung)) or wait(timeout))
    pulse.start()
    try:
        eventually(lambda: looked.count(2) > 20)
        assert len(hung) == 2
    finally:
        ends.set()
        pulse.leave()


def test_a_thread_has_a_connection_outside_the_pool(monkeypatch):
    options = connection.settings_dict["OPTIONS"]
    monkeypatch.setitem(options, "pool", {"min_size": 0, "max_size": 1})

    def look():
        own.use_connection_of_its_own()
        return connections["default"].pool

    with ThreadPoolExecutor() as other:
        assert other.submit(look).result() is None
    assert options["pool"]


def test_to_import_the_wsgi_application_and_celery_begins_nothing():
    from controlplane import celery, wsgi  # noqa: F401

    assert own.presence_threads == {}
