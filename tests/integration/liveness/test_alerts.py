"""Alerts over a real HTTP receiver: one message at the beginning and one at the end of an incident, without losses."""

import json
import socket
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain, repeat
from types import SimpleNamespace

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connection
from standardwebhooks import Webhook, WebhookVerificationError

from controlplane.observability import alert_watch
from jobs.checks import check_alerts
from jobs.models import AlertMessage, Incident, WorkerJob
from jobs.services import alert_channels, alert_rules, alert_texts, alerts
from jobs.services.alerts import run_alerts
from jobs.services.liveness_check import check_liveness
from liveness.models import Brake, Clock, Server, ServerEvent
from liveness.states import RETIRED
from tests.support.receiver import listening

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYqr"
ON_BY_DEFAULT = (
    "server_lost",
    "brake",
    "check_overdue",
    "quarantine",
    "no_matching_worker",
    "stuck_job",
    "answer_waits",
)
ONLY = {rule.upper(): False for rule in ON_BY_DEFAULT}
ONLY = {**ONLY, "OLDEST_WAITING": None, "OLDEST_SNAPSHOT": None}  # an autovacuum has a snapshot too


@pytest.fixture
def receiver():
    with listening() as receiver:
        yield receiver


@pytest.fixture
def rules(settings, receiver):
    """Set ALERTS with a webhook to the receiver and only the named rules."""

    def rules(**given):
        settings.ALERTS = {
            **ONLY, "WEBHOOK_URLS": receiver.url, "WEBHOOK_SECRET": SECRET, "WEBHOOK_ALLOW_PRIVATE": True, **given
        }  # fmt: skip

    return rules


@pytest.fixture
def passing(clock):
    """Let time pass, then run alerts."""

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
    assert opened["summary"] == ended["summary"] == "The brake holds WORKER: 4 of 5 silent at the same time"
    assert opened["incident"] == ended["incident"]
    assert ended["ended_at"] is not None


def test_the_end_of_an_incident_shows_its_worst_summary(rules, receiver, passing):
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
    assert opened["summary"] == "The brake holds WORKER: 4 of 5 silent at the same time"
    assert ended["summary"] == "The brake holds WORKER: 5 of 5 silent at the same time"
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
    assert (message.next_try_at, message.sent_at, message.error) == (None, None, "The receiver responded with 500.")


def test_a_crash_around_the_sending_loses_no_message_and_repeats_its_id(rules, receiver, passing, monkeypatch):
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


def test_no_other_process_sends_the_test_message_first(rules_committed, receiver, threads, monkeypatch):
    write = alerts.write_test

    def write_slowly(*channel):
        messages = write(*channel)
        assert threads(alerts.send_due_messages).result() == 0
        return messages

    monkeypatch.setattr(alerts, "write_test", write_slowly)
    assert set(alerts.send_test().values()) == {""}


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
def test_a_muted_rule_sends_nothing_until_the_mute_ends(rules, receiver, passing, rule):
    rules(BRAKE=True)
    engage_brake()
    alerts.mute(rule, 600, "operator:ann", "we know")
    passing(60)
    passing(60)
    assert receiver.got == []
    assert Incident.objects.get().announced_at is None
    passing(600)
    assert told(receiver) == ["incident.opened"]


def test_an_incident_that_ends_during_its_mute_is_never_announced(rules, receiver, passing):
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


def test_a_web_process_sends_the_alert_when_no_executor_is_left(rules, receiver, clock):
    rules(CHECK_OVERDUE=True)
    assert alert_watch.send_if_unattended() is False, "no check has ever run: it is being set up"
    Clock.objects.update(finished_at=clock_now())
    assert alert_watch.send_if_unattended() is False
    clock.advance(31)
    assert alert_watch.send_if_unattended() is True
    assert "No liveness check has finished for 31 s" in json.loads(receiver.got[0].body)["data"]["summary"]


def test_a_chat_gets_the_message_too(rules, receiver, passing):
    host = receiver.url.removeprefix("http://").partition("/")[0]
    rules(BRAKE=True, WEBHOOK_URLS="", APPRISE_URLS=f"json://{host}/chat")
    engage_brake()
    passing(20)
    (chat,) = receiver.got
    assert json.loads(chat.body)["title"] == "[control plane] The brake holds WORKER: 4 of 5 silent at the same time"


def test_one_channel_that_fails_keeps_nothing_from_the_others(rules, receiver, passing):
    rules(BRAKE=True, WEBHOOK_URLS=f"http://127.0.0.1:1/ {receiver.url}")
    engage_brake()
    passing(20)
    assert told(receiver) == ["incident.opened"]
    failed, sent = AlertMessage.objects.order_by("channel")
    assert (failed.sent_at, bool(failed.error), bool(sent.sent_at)) == (None, True, True)


@pytest.fixture
def dripping():
    """Return the address of a receiver that answers 200 and then sends bytes without an end, and its calls."""
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


def test_a_receiver_that_never_ends_its_response_delays_no_other_message(
    rules, receiver, passing, dripping, monkeypatch
):
    monkeypatch.setattr(alert_channels, "CALL_TIMEOUT", 4)
    rules(BRAKE=True, WEBHOOK_URLS=f"{dripping.url} {receiver.url}", HEARTBEAT_URL=dripping.url)
    Clock.objects.update(finished_at=clock_now())
    engage_brake()
    passing(20)
    assert told(receiver) == ["incident.opened"]
    hangs, sent = AlertMessage.objects.order_by("channel")
    assert (hangs.sent_at, hangs.error) == (None, "The call has not ended within 4 seconds.")
    assert bool(sent.sent_at)
    passing(90)
    hangs.refresh_from_db()
    assert (hangs.tries, hangs.error) == (2, "The previous call of this channel has not ended yet.")
    assert len(dripping.callers) == 2, "one of the webhook, and one of the dead man's switch"


def test_an_answer_without_end_is_not_read(rules, receiver, passing, endless):
    rules(BRAKE=True, WEBHOOK_URLS=endless)
    engage_brake()
    passing(20)
    assert AlertMessage.objects.get().sent_at is not None


@pytest.fixture
def endless():
    """Return the address of a receiver whose response has a body without an end."""

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
    assert "brake: The brake holds WORKER: 4 of 5 silent at the same time (no message was sent)" in seen
    assert "muted: brake until" in seen
    call_command("alerts", "unmute", "brake")
    passing(20)
    assert told(receiver) == ["incident.opened"]


def test_that_nothing_is_unmuted_is_no_event(clock):
    call_command("alerts", "unmute", "brake")
    assert not ServerEvent.objects.exists()
    for action in ("mute", "unmute", "unmute"):
        call_command("alerts", action, "brake")
    assert list(ServerEvent.objects.values_list("action", flat=True)) == ["mute_alerts", "unmute_alerts"]


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


def messages_of(receiver):
    return [json.loads(request.body) for request in receiver.got]


def lose(one):
    Server.objects.filter(pk=one.id).update(state="DISCONNECTED", state_actor="liveness")


def retire(one):
    Server.objects.filter(pk=one.id).update(state="NOT_RUNNING", state_actor="liveness")


def test_a_second_loss_in_an_open_incident_is_announced(rules, receiver, passing, worker):
    rules(SERVER_LOST=True)
    first, second, _ = (worker(name=name, cluster="north") for name in "abc")
    lose(first)
    passing(20)
    lose(second)
    passing(20)
    passing(20)
    opened, updated = messages_of(receiver)
    assert (opened["type"], updated["type"]) == ("incident.opened", "incident.updated")
    assert opened["data"]["incident"] == updated["data"]["incident"]
    assert updated["data"]["summary"] == "2 servers of cluster north lost: a, b"
    for one in (first, second):
        retire(one)
    passing(10)
    assert told(receiver) == ["incident.opened", "incident.updated", "incident.ended"]


def test_a_second_loss_of_the_same_server_is_announced_too(rules, receiver, passing, worker):
    rules(SERVER_LOST=True)
    one, other = worker(name="a"), worker(name="b")
    lose(one), lose(other)
    passing(20)
    Server.objects.filter(pk=one.id).update(state="TERMINATING", state_actor="server")
    Server.objects.filter(pk=one.id).update(state="NOT_RUNNING", state_actor="liveness")
    with connection.cursor() as cursor:
        cursor.execute(
            "insert into liveness_serverevent (subject_type, subject_id, server_id, to_state, actor, reason)"
            " values ('server', %s, %s, 'DISCONNECTED', 'liveness', '')", [one.id, one.id],
        )  # fmt: skip
    passing(20)
    assert told(receiver) == ["incident.opened", "incident.updated"]


def test_messages_about_further_losses_become_less_frequent(rules, receiver, passing, worker):
    rules(SERVER_LOST=True)
    for number in range(30):
        lose(worker(name=f"w{number}"))
        passing(10)
    assert 5 <= len(receiver.got) <= 9
    passing(600)
    assert "30 servers" in messages_of(receiver)[-1]["data"]["summary"], "the last ones are told in the end"


def test_a_loss_is_over_when_its_server_is_recovered(rules, receiver, passing, worker):
    rules(SERVER_LOST=True)
    one = worker(name="a")
    lose(one)
    passing(20)
    retire(one)
    passing(10)
    assert told(receiver) == ["incident.opened", "incident.ended"]


def test_a_loss_that_ends_at_once_is_announced_and_ended(rules, receiver, passing, worker):
    rules(SERVER_LOST=True)
    one = worker(name="a")
    lose(one)
    retire(one)
    passing(20)
    passing(10)
    passing(10)
    assert told(receiver) == ["incident.opened", "incident.ended"]


def test_a_loss_whose_job_waits_for_an_operator_is_not_over(rules, receiver, passing, worker, submit, clock):
    rules(SERVER_LOST=True)
    submit()
    one = worker(name="a", config={"worker_task_restart_strategy": "NEVER"})
    one.hold()
    clock.advance(60)
    for _ in range(4):
        check_liveness()
        clock.advance(10)
    assert Server.objects.get(name="a").state in RETIRED
    passing(10)
    passing(200)
    assert told(receiver) == ["incident.opened"]
    WorkerJob.objects.get()
    call_command("fail_stale_running", "--older-than", "1s", "--note", "n")
    passing(20)
    assert told(receiver) == ["incident.opened", "incident.ended"]


def test_workers_that_crash_again_and_again_are_few_incidents(rules, receiver, passing, worker):
    rules(SERVER_LOST=True)
    for number in range(60):
        one = worker(name=f"w{number}")
        lose(one)
        passing(10)
        retire(one)
        passing(20)
    assert Incident.objects.count() <= 8
    assert len(receiver.got) <= 30, "in half an hour"


def test_very_many_clusters_are_not_as_many_incidents(rules, receiver, passing, worker, monkeypatch):
    monkeypatch.setattr(alert_rules, "LOSSES_NAMED", 3)
    rules(SERVER_LOST=True)
    for number in range(6):
        lose(worker(name=f"w{number}", cluster=f"c{number}"))
    passing(20)
    summaries = {message["data"]["summary"] for message in messages_of(receiver)}
    assert len(summaries) == 4 and "3 servers of 3 other clusters lost" in summaries


STUCK_RULES = {"STUCK_JOB": True}


def test_a_job_that_waits_after_a_loss_is_announced_with_its_flag(rules, receiver, passing, worker, submit):
    rules(**STUCK_RULES)
    job = submit(name="nightly report")
    one = worker(name="a", config={"worker_task_restart_strategy": "IMMEDIATELY"})
    one.hold()
    passing(1)
    assert receiver.got == []
    passing(60)
    check_liveness()
    passing(20)
    (message,) = messages_of(receiver)
    data = message["data"]
    assert (data["rule"], data["reason"], data["severity"]) == ("stuck_job", "waits_after_loss", "warning")
    assert [(found["id"], found["name"]) for found in data["details"]["jobs"]] == [(job["id"], "nightly report")]
    assert "nightly report" in data["summary"]
    worker(name="b")
    passing(20)
    passing(60)
    assert told(receiver) == ["incident.opened", "incident.ended"]


def test_a_job_held_by_a_lost_server_is_announced(rules, receiver, passing, worker, submit):
    rules(**STUCK_RULES)
    submit()
    worker(name="a", config={"worker_task_restart_strategy": "NEVER"}).hold()
    passing(60)
    check_liveness()
    passing(20)
    assert [message["data"]["reason"] for message in messages_of(receiver)] == ["held_by_lost_server"]


def test_a_job_that_all_workers_refused_is_announced_and_a_second_one_too(rules, receiver, passing, worker, submit):
    rules(**STUCK_RULES)
    one = worker(name="a", max_concurrent=5)
    for name in ("first", "second"):
        submit(name=name, unmatched="wait")
        one.beat()
        attempt = one.claim()[0]
        one.report({"attempt": attempt["id"], "event": "RELEASED", "reason": "not_allowed"})
        passing(20)
    opened, updated = messages_of(receiver)
    assert (opened["data"]["reason"], updated["type"]) == ("refused_by_all", "incident.updated")
    assert "first" in opened["data"]["summary"] and "second" in updated["data"]["summary"]


def test_another_job_in_quarantine_is_announced(rules, receiver, passing, worker, submit):
    rules(QUARANTINE=True)
    one = worker(name="a")
    for _ in range(2):
        submit()
        one.beat()
        attempt = one.hold()
        one.report({"attempt": attempt["id"], "event": "FAILED", "error": {"code": "BAD", "message": "no"}})
        WorkerJob.objects.filter(state="FAILED").update(error={"code": "WORKER_CRASHED", "message": "gone"})
        passing(20)
    assert told(receiver) == ["incident.opened", "incident.updated"]


def test_a_message_has_severity_servers_and_a_link_to_the_console(rules, receiver, passing, worker, settings, client):
    settings.CONSOLE_URL = "https://control.example.org/"
    rules(SERVER_LOST=True)
    one = worker(name="a", cluster="north", hostname="host-7")
    lose(one)
    passing(20)
    (message,) = messages_of(receiver)
    url = f"https://control.example.org/admin/instance/servers/{one.id}/"
    assert (message["data"]["severity"], message["data"]["url"]) == ("critical", url)
    assert message["data"]["details"]["servers"] == [{"id": one.id, "name": "a", "hostname": "host-7", "url": url}]
    client.force_login(User.objects.create_superuser("ann"))
    assert client.get(url.removeprefix("https://control.example.org")).status_code == 200
    _, text = alert_texts.describe_message(message)
    assert {"Severity: critical", "Server: a on host-7", f"Link: {url}"} <= set(text.split("\n"))
    retire(one)
    passing(20)
    assert messages_of(receiver)[1]["data"]["url"] == url


@pytest.mark.parametrize(
    ("address", "link"),
    [
        ("https://x.example", "https://x.example/admin/instance/jobs/?state=PENDING"),
        ("https://x.example/admin/instance/", "https://x.example/admin/instance/jobs/?state=PENDING"),
        ("http://x.example:81/behind/", "http://x.example:81/behind/admin/instance/jobs/?state=PENDING"),
        ("", None),
    ],
)
def test_links_begin_with_the_public_address_of_the_console(settings, monkeypatch, address, link):
    settings.CONSOLE_URL = address
    assert alert_rules.link_to("jobs", state="PENDING") == link
    settings.CONSOLE_URL = "https://other.example"
    monkeypatch.setenv("CONSOLE_URL", address)
    assert alert_rules.link_to("jobs", state="PENDING") == (
        link or "https://other.example/admin/instance/jobs/?state=PENDING"
    )


def test_every_link_of_a_rule_leads_to_a_page(settings, client, db):
    settings.CONSOLE_URL = "https://x.example"
    client.force_login(User.objects.create_superuser("ann"))
    links = [alert_rules.link_to(page) for page in ("overview", "brake", "quarantine", "alerts")]
    links += [alert_rules.link_to("servers", cluster="a&b *_[<"), alert_rules.link_to("jobs", flag="refused_by_all")]
    for link in links:
        assert client.get(link.removeprefix("https://x.example")).status_code == 200, link


def test_a_public_address_that_is_none_is_found_by_the_checks(settings):
    settings.CONSOLE_URL = "control.example.org"
    assert [message.id for message in check_alerts()] == ["jobs.E010"]


def test_an_incident_that_began_without_a_channel_is_not_sent_when_one_is_set(rules, receiver, passing, worker):
    rules(SERVER_LOST=True, BRAKE=True, WEBHOOK_URLS="")
    engage_brake()
    lose(worker(name="a"))
    passing(20)
    passing(600)
    rules(SERVER_LOST=True, BRAKE=True)
    passing(20)
    assert receiver.got == []
    lose(worker(name="b"))
    passing(20)
    assert told(receiver) == ["incident.updated"], "what happens from now on is told"
    Brake.objects.all().delete()
    passing(200)
    passing(200)
    assert told(receiver) == ["incident.updated"], "nor the end of what nobody was told of"


def test_a_new_channel_gets_no_end_of_an_incident_without_its_beginning(rules, receiver, passing):
    rules(BRAKE=True)
    engage_brake()
    passing(20)
    rules(BRAKE=True, WEBHOOK_URLS=f"{receiver.url} {receiver.url}&second")
    Brake.objects.all().delete()
    passing(100)
    passing(20)
    assert [request.path.endswith("second") for request in receiver.got] == [False, False]


def test_an_open_incident_that_an_earlier_version_sent_to_nobody_is_not_sent(rules, receiver, passing):
    rules(BRAKE=True)
    Incident.objects.create(rule="brake", subject="WORKER", summary="The brake holds WORKER")
    engage_brake()
    passing(20)
    assert receiver.got == []
