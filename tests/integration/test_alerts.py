"""Alerts: one message when an incident begins and one when it is over, over a real HTTP receiver; none lost, none twice
under another id."""

import json
import socket
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain, repeat
from types import SimpleNamespace

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from standardwebhooks import Webhook, WebhookVerificationError

from controlplane.observability import alert_watch
from jobs.checks import check_alerts
from jobs.models import AlertMessage, Incident, WorkerJob
from jobs.services import alert_channels, alerts
from jobs.services.alerts import run_alerts
from jobs.services.liveness_check import check_liveness
from liveness.models import Brake, Clock, Server
from liveness.states import RETIRED

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYqr"
ONLY = {rule.upper(): False for rule in ("server_lost", "brake", "check_overdue", "quarantine", "no_matching_worker")}
ONLY = {**ONLY, "OLDEST_WAITING": None}


@pytest.fixture
def receiver():
    """An HTTP server that keeps what is posted to it, and answers as it is told."""
    got, statuses = [], []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"] or 0))
            got.append(SimpleNamespace(path=self.path, headers=dict(self.headers), body=body))
            self.send_response(statuses.pop(0) if statuses else 204)
            self.end_headers()

        def do_GET(self):
            got.append(SimpleNamespace(path=self.path, headers=dict(self.headers), body=b""))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield SimpleNamespace(got=got, statuses=statuses, url=f"http://127.0.0.1:{server.server_port}/hook?a=b")
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def rules(settings, receiver):
    """Sets ALERTS; a webhook to the receiver, and no rule but those that are named."""

    def rules(**given):
        settings.ALERTS = {
            **ONLY, "WEBHOOK_URLS": receiver.url, "WEBHOOK_SECRET": SECRET, "WEBHOOK_ALLOW_PRIVATE": True, **given
        }  # fmt: skip

    return rules


@pytest.fixture
def passing(clock):
    """Time passes, and alerts run."""

    def passing(seconds):
        clock.advance(seconds)
        run_alerts()

    return passing


def told(receiver):
    return [json.loads(request.body)["type"] for request in receiver.got]


def engage_brake():
    Brake.objects.create(type="WORKER", engaged_observed=0, silent=4, alive=5)


def test_an_incident_is_one_message_when_it_begins_and_one_when_it_is_over(rules, receiver, passing):
    rules(BRAKE=True)
    engage_brake()
    for _ in range(3):
        passing(20)
    assert told(receiver) == ["incident.opened"]
    Brake.objects.all().delete()
    passing(30)
    assert told(receiver) == ["incident.opened"], "it may come back within a minute"
    passing(60)
    passing(60)
    assert told(receiver) == ["incident.opened", "incident.ended"]
    opened, ended = (json.loads(request.body)["data"] for request in receiver.got)
    assert opened["summary"] == ended["summary"] == "The brake holds WORKER: 4 of 5 fell silent at once"
    assert opened["incident"] == ended["incident"]
    assert ended["ended_at"] is not None


def test_the_end_of_an_incident_says_how_bad_it_was_at_its_worst(rules, receiver, passing):
    rules(BRAKE=True)
    engage_brake()
    passing(20)
    for silent in (5, 2):
        Brake.objects.update(silent=silent)
        passing(20)
    Brake.objects.all().delete()
    passing(100)
    passing(20)
    opened, ended = (json.loads(request.body)["data"] for request in receiver.got)
    assert opened["summary"] == "The brake holds WORKER: 4 of 5 fell silent at once"
    assert ended["summary"] == "The brake holds WORKER: 5 of 5 fell silent at once"
    assert ended["details"] == {"silent": 5, "alive": 5}


def test_what_comes_back_is_a_new_incident(rules, receiver, passing):
    rules(BRAKE=True)
    for _ in range(2):
        engage_brake()
        passing(20)
        Brake.objects.all().delete()
        passing(100)
    assert told(receiver) == ["incident.opened", "incident.ended"] * 2


def test_a_webhook_is_signed_and_verified_as_standard_webhooks_has_it(rules, receiver, passing):
    rules(BRAKE=True)
    engage_brake()
    passing(20)
    (request,) = receiver.got
    assert request.path == "/hook?a=b"
    assert Webhook(SECRET).verify(request.body, request.headers)["type"] == "incident.opened"
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET).verify(request.body.replace(b"4 of 5", b"0 of 5"), request.headers)


def test_what_was_not_taken_is_sent_again_later_under_the_same_id(rules, receiver, passing):
    rules(BRAKE=True)
    engage_brake()
    receiver.statuses[:] = [500, 503]
    passing(20)
    passing(20)
    assert len(receiver.got) == 1, "not at once"
    passing(60)
    passing(120)
    assert len(receiver.got) == 3
    assert len({request.headers["webhook-id"] for request in receiver.got}) == 1
    assert AlertMessage.objects.get().sent_at is not None
    passing(3600)
    assert len(receiver.got) == 3


def test_after_a_day_it_is_given_up(rules, receiver, passing):
    rules(BRAKE=True)
    engage_brake()
    receiver.statuses[:] = [500] * 100
    passing(20)
    for _ in range(26):
        passing(3601)
    message = AlertMessage.objects.get()
    assert (message.next_try_at, message.sent_at, message.error) == (None, None, "It answered 500.")


def test_a_crash_after_the_sending_sends_the_same_id_again_and_one_before_it_loses_nothing(
    rules, receiver, passing, monkeypatch
):
    rules(BRAKE=True)
    engage_brake()

    def crash(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(alerts, "send_message", crash)
        with pytest.raises(KeyboardInterrupt):
            passing(20)
    with monkeypatch.context() as broken:
        broken.setattr(alerts.sql, "note_delivery", SimpleNamespace(fetch_rows=crash))
        with pytest.raises(KeyboardInterrupt):
            passing(90)
    passing(150)
    passing(3600)
    assert len({request.headers["webhook-id"] for request in receiver.got}) == 1
    assert AlertMessage.objects.get().sent_at is not None


def test_of_two_who_send_at_once_one_sends(rules_committed, receiver, threads, committed):
    engage_brake()
    alerts.note_incidents(list(alerts.find_conditions(alerts.instance_figures())))
    sent = [threads(alerts.send_due_messages) for _ in range(3)]
    assert sorted(future.result(timeout=60) for future in sent) == [0, 0, 1]
    assert len(receiver.got) == 1


@pytest.fixture
def rules_committed(committed, rules):
    rules(BRAKE=True)


def test_two_who_note_at_once_write_one_message(rules_committed, receiver, threads, committed):
    engage_brake()
    conditions = list(alerts.find_conditions(alerts.instance_figures()))
    noted = [threads(alerts.note_incidents, conditions) for _ in range(4)]
    assert sum(future.result(timeout=60).messages for future in noted) == 1
    assert (Incident.objects.count(), AlertMessage.objects.count()) == (1, 1)


def test_a_private_address_is_refused_unless_it_is_allowed(rules, receiver, passing):
    rules(BRAKE=True, WEBHOOK_ALLOW_PRIVATE=False)
    engage_brake()
    passing(20)
    assert receiver.got == []
    assert "private network" in AlertMessage.objects.get().error


@pytest.mark.parametrize("rule", ["brake", "all"])
def test_of_what_is_muted_nobody_is_told_until_the_mute_is_over(rules, receiver, passing, rule):
    rules(BRAKE=True)
    engage_brake()
    alerts.mute(rule, 600, "operator:ann", "we know")
    passing(60)
    passing(60)
    assert receiver.got == []
    assert Incident.objects.get().announced_at is None
    passing(600)
    assert told(receiver) == ["incident.opened"]


def test_what_came_and_went_while_it_was_muted_is_never_told(rules, receiver, passing):
    rules(BRAKE=True)
    engage_brake()
    alerts.mute("brake", 600, "operator:ann")
    passing(60)
    Brake.objects.all().delete()
    passing(100)
    passing(900)
    assert receiver.got == []
    assert Incident.objects.get().ended_at is not None


def test_lost_servers_are_one_incident_for_each_cluster(rules, receiver, passing, worker):
    rules(SERVER_LOST=True)
    for name, cluster in (("a", "north"), ("b", "north"), ("c", "south")):
        one = worker(name=name, cluster=cluster)
        Server.objects.filter(pk=one.id).update(state="DISCONNECTED", state_actor="liveness")
    passing(20)
    summaries = sorted(json.loads(request.body)["data"]["summary"] for request in receiver.got)
    assert summaries == ["1 server of cluster south lost: c", "2 servers of cluster north lost: a, b"]


def test_a_server_that_failed_is_a_loss_however_soon_it_was_retired(rules, receiver, passing, worker, clock):
    rules(SERVER_LOST=True)
    worker(name="a").beat(state="ERROR")
    other = worker(name="b")
    for _ in range(3):
        clock.advance(10), other.beat(), check_liveness()
    assert Server.objects.get(name="a").state in RETIRED
    passing(20)
    assert told(receiver) == ["incident.opened"]


def test_each_rule_finds_what_it_is_for(rules, receiver, passing, worker, submit, clock):
    rules(QUARANTINE=True, NO_MATCHING_WORKER=True, VERSION_SKEW=True, OLDEST_WAITING=30, FAILURES_A_MINUTE=0.2,
          CHECK_OVERDUE=True)  # fmt: skip
    Clock.objects.update(finished_at=clock_now())
    one = worker(name="a", version="1.0")
    worker(name="b", version="2.0")
    submit()
    attempt = one.hold()
    one.report({"attempt": attempt["id"], "event": "FAILED", "error": {"code": "BAD", "message": "no"}})
    WorkerJob.objects.filter(state="FAILED").update(error={"code": "WORKER_CRASHED", "message": "gone"})
    submit(tags=["gpu"], unmatched="wait")
    passing(100)
    found = set(Incident.objects.values_list("rule", flat=True))
    assert found == {
        "version_skew", "oldest_waiting", "no_matching_worker", "check_overdue", "quarantine", "failures_a_minute"
    }  # fmt: skip


def test_where_no_executor_is_left_a_web_process_tells_that(rules, receiver, clock):
    rules(CHECK_OVERDUE=True)
    assert alert_watch.send_if_unattended() is False, "no check has ever run: it is being set up"
    Clock.objects.update(finished_at=clock_now())
    assert alert_watch.send_if_unattended() is False
    clock.advance(31)
    assert alert_watch.send_if_unattended() is True
    assert "No liveness check has gone through for 31 s" in json.loads(receiver.got[0].body)["data"]["summary"]


def test_a_chat_is_told_too(rules, receiver, passing):
    host = receiver.url.removeprefix("http://").partition("/")[0]
    rules(BRAKE=True, WEBHOOK_URLS="", APPRISE_URLS=f"json://{host}/chat")
    engage_brake()
    passing(20)
    (chat,) = receiver.got
    assert json.loads(chat.body)["title"] == "[control plane] The brake holds WORKER: 4 of 5 fell silent at once"


def test_one_channel_that_fails_keeps_nothing_from_the_others(rules, receiver, passing):
    rules(BRAKE=True, WEBHOOK_URLS=f"http://127.0.0.1:1/ {receiver.url}")
    engage_brake()
    passing(20)
    assert told(receiver) == ["incident.opened"]
    failed, sent = AlertMessage.objects.order_by("channel")
    assert (failed.sent_at, bool(failed.error), bool(sent.sent_at)) == (None, True, True)


@pytest.fixture
def dripping():
    """The address of a receiver that answers 200, and then byte after byte without end; and how many have called."""
    over, callers = threading.Event(), []

    def answer(connection):
        with connection, suppress(OSError):
            callers.append(connection.recv(65536))
            for part in chain([b"HTTP/1.1 200 OK\r\nX-Odd: "], repeat(b"x")):
                connection.sendall(part)
                if over.wait(0.01):
                    return

    def accept():
        with suppress(OSError):
            while True:
                threads.append(threading.Thread(target=answer, args=listening.accept()[:1]))
                threads[-1].start()

    threads = []
    listening = socket.create_server(("127.0.0.1", 0))
    threads.append(threading.Thread(target=accept))
    threads[0].start()
    yield SimpleNamespace(url=f"http://127.0.0.1:{listening.getsockname()[1]}/", callers=callers)
    over.set()
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()
    for thread in (*threads, *alert_channels.calls.values()):
        thread.join()


def test_the_next_conditions_are_told_though_a_receiver_never_ends_its_answer(
    rules, receiver, passing, dripping, monkeypatch
):
    monkeypatch.setattr(alert_channels, "PATIENCE", 4)
    rules(BRAKE=True, WEBHOOK_URLS=f"{dripping.url} {receiver.url}", HEARTBEAT_URL=dripping.url)
    Clock.objects.update(finished_at=clock_now())
    engage_brake()
    passing(20)
    assert told(receiver) == ["incident.opened"]
    hangs, sent = AlertMessage.objects.order_by("channel")
    assert (hangs.sent_at, hangs.error) == (None, "It has not ended within 4 seconds.")
    assert bool(sent.sent_at)
    passing(90)
    hangs.refresh_from_db()
    assert (hangs.tries, hangs.error) == (2, "An earlier call has not ended yet.")
    assert len(dripping.callers) == 2, "one of the webhook, and one of the dead man's switch"


def test_an_answer_without_end_is_not_read(rules, receiver, passing, endless):
    rules(BRAKE=True, WEBHOOK_URLS=endless)
    engage_brake()
    passing(20)
    assert AlertMessage.objects.get().sent_at is not None


@pytest.fixture
def endless():
    """The address of a receiver whose answer has a body without end."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()
            with suppress(OSError):
                while not over.is_set():
                    self.wfile.write(b"x" * 65536)

        def log_message(self, *_):
            pass

    over = threading.Event()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    over.set()
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_dead_mans_switch_is_called_each_minute_while_the_check_runs(rules, receiver, passing):
    rules(HEARTBEAT_URL=receiver.url.replace("hook", "ping"))
    Clock.objects.update(finished_at=clock_now())
    passing(10)
    passing(10)
    assert [request.path for request in receiver.got] == ["/ping?a=b"]
    passing(60)
    assert len(receiver.got) == 1, "no check has gone through for three intervals"
    Clock.objects.update(finished_at=clock_now())
    passing(10)
    assert len(receiver.got) == 2


def test_the_command_sends_a_test_over_each_channel(rules, receiver, capsys, clock):
    rules()
    call_command("alerts", "test")
    assert capsys.readouterr().out == "webhook 1: sent\n"
    assert told(receiver) == ["test"]
    rules(WEBHOOK_ALLOW_PRIVATE=False)
    with pytest.raises(CommandError):
        call_command("alerts", "test")
    rules(WEBHOOK_URLS="")
    with pytest.raises(CommandError, match="No channel"):
        call_command("alerts", "test")


def test_the_command_mutes_and_lists(rules, receiver, passing, capsys):
    rules(BRAKE=True)
    engage_brake()
    call_command("alerts", "mute", "brake", "--for", "2h", "--note", "we know")
    passing(20)
    call_command("alerts")
    seen = capsys.readouterr().out
    assert "brake: The brake holds WORKER: 4 of 5 fell silent at once (nobody was told)" in seen
    assert "muted: brake until" in seen
    call_command("alerts", "unmute", "brake")
    passing(20)
    assert told(receiver) == ["incident.opened"]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"WEBHOOK_SECRET": None}, "jobs.E008"),
        ({"WEBHOOK_SECRET": "whsec_short"}, "jobs.E008"),
        ({"WEBHOOK_URLS": "example.org/hook"}, "jobs.E007"),
        ({"OLDEST_WAITING": "soon"}, "jobs.E001"),
    ],
)
def test_settings_that_cannot_work_are_found_by_the_checks(rules, given, problem):
    rules()
    assert check_alerts() == []
    rules(**given)
    assert [message.id for message in check_alerts()] == [problem]


def clock_now():
    with connection.cursor() as cursor:
        cursor.execute("select clock_timestamp()")
        return cursor.fetchone()[0]


def test_incidents_that_ended_long_ago_go_with_their_messages(rules, receiver, passing):
    rules(BRAKE=True)
    engage_brake()
    passing(20)
    Brake.objects.all().delete()
    passing(100)
    passing(89 * 86400)
    assert Incident.objects.count() == 1
    passing(2 * 86400)
    assert (Incident.objects.count(), AlertMessage.objects.count()) == (0, 0)
