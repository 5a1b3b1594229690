"""An end of a job or an execution is notified by one signed POST, which is tried again and can be sent again."""

import base64
import json
import socket
import threading
from contextlib import suppress

import pytest
import urllib3
from standardwebhooks import Webhook, WebhookVerificationError

from jobs.models import AlertMessage
from jobs.services import alert_calls, alerts, notifications
from jobs.services.interventions import cancel_job
from tests.support.executions import SCRIPT, step
from tests.support.receiver import listening

pytestmark = pytest.mark.django_db

SECRET = "whsec_" + base64.b64encode(b"s" * 32).decode()


@pytest.fixture
def receiver():
    with listening() as receiver:
        yield receiver


@pytest.fixture(autouse=True)
def settings_of_alerts(settings):
    settings.ALERTS = {"WEBHOOK_SECRET": SECRET}
    settings.JOBS = {**settings.JOBS, "NOTIFY_ALLOW_PRIVATE": True}


@pytest.fixture
def secret(submit):
    return submit.client.get("/notifications/secret").json()["secret"]


@pytest.fixture
def listed(submit):
    return lambda query="": submit.client.get(f"/notifications{query}").json()["items"]


def bodies(receiver):
    return [json.loads(request.body) for request in receiver.got]


def test_the_end_of_a_job_is_one_signed_post(submit, worker, receiver, secret):
    job = submit(notify=[{"url": receiver.url}], name="report", key="k")
    one = worker()
    attempt = one.hold()
    assert notifications.send_notifications() == 0
    one.report({"attempt": attempt["id"], "event": "COMPLETED", "output": {"rows": 3}})
    assert notifications.send_notifications() == 1
    (request,) = receiver.got
    message = Webhook(secret).verify(request.body, request.headers)
    assert message["type"] == "job.completed"
    data = message["data"]
    assert (data["id"], data["key"], data["name"], data["state"]) == (job["id"], "k", "report", "COMPLETED")
    assert (data["output_bytes"], data["error"]) == (len('{"rows": 3}'), None)
    assert data["created_at"] <= data["finished_at"]
    assert notifications.send_notifications() == 0


def test_only_the_wanted_states_are_notified(submit, worker, receiver):
    submit(notify=[{"url": receiver.url, "on": ["FAILED"]}])
    submit(notify=[{"url": receiver.url, "on": ["COMPLETED"]}])
    one = worker(max_concurrent=2)
    for attempt in [one.hold(), one.hold()]:
        one.report({"attempt": attempt["id"], "event": "FAILED", "error": {"code": "BAD", "message": "no"}})
    assert notifications.send_notifications() == 1
    assert [body["data"]["error"] for body in bodies(receiver)] == [{"code": "BAD", "message": "no"}]


def test_a_retry_is_no_end(submit, worker, receiver):
    submit(notify=[{"url": receiver.url}], max_retries=1)
    one = worker()
    one.report({"attempt": one.hold()["id"], "event": "FAILED", "error": {"code": "BAD", "message": "no"}})
    assert AlertMessage.objects.count() == 0


def test_a_cancelled_job_is_notified_too(submit, receiver):
    job = submit(notify=[{"url": receiver.url}])
    cancel_job(job["id"], "operator:ann")
    notifications.send_notifications()
    assert [body["type"] for body in bodies(receiver)] == ["job.cancelled"]


def test_the_end_of_an_execution_is_notified(begin, do, receiver):
    run = begin(
        step("a", notify=[{"url": receiver.url, "on": ["COMPLETED"]}]), step("b", "a"), notify=[{"url": receiver.url}]
    )
    do("a")
    do("b", fails=True)
    assert notifications.send_notifications() == 2
    first, second = sorted(bodies(receiver), key=lambda body: body["timestamp"])
    assert (first["type"], first["data"]["execution"], first["data"]["step"]) == ("job.completed", run.id, "a")
    assert (second["type"], second["data"]["id"]) == ("execution.failed", run.id)
    assert second["data"]["error"]["code"] == "STEPS_FAILED"


def test_each_token_signs_with_its_own_secret(api, submit, secret, receiver):
    other = api("client")
    assert secret.startswith("whsec_") and len(base64.b64decode(secret.removeprefix("whsec_"))) == 32
    theirs = other.get("/notifications/secret").json()["secret"]
    assert theirs != secret == submit.client.get("/notifications/secret").json()["secret"]
    job = other.post("/jobs", {"action": SCRIPT, "notify": [{"url": receiver.url}]}).json()
    cancel_job(job["id"], "operator:ann")
    notifications.send_notifications()
    (request,) = receiver.got
    Webhook(theirs).verify(request.body, request.headers)
    for wrong in (secret, SECRET):
        with pytest.raises(WebhookVerificationError):
            Webhook(wrong).verify(request.body, request.headers)


def test_a_failed_call_is_tried_again_with_the_same_id(submit, receiver, clock):
    job = submit(notify=[{"url": receiver.url}])
    cancel_job(job["id"], "operator:ann")
    receiver.statuses.append(500)
    assert notifications.send_notifications() == 0
    assert notifications.send_notifications() == 0, "not before a minute has passed"
    clock.advance(130)
    assert notifications.send_notifications() == 1
    assert len({request.headers["webhook-id"] for request in receiver.got}) == 1


def test_a_notification_that_was_given_up_can_be_sent_again(submit, receiver, clock, listed, api):
    job = submit(notify=[{"url": receiver.url}])
    cancel_job(job["id"], "operator:ann")
    receiver.statuses += [500, 500]
    notifications.send_notifications()
    clock.advance(90_000)
    notifications.send_notifications()
    (given_up,) = listed("?state=given_up")
    assert (given_up["job"], given_up["state"], given_up["tries"]) == (job["id"], "given_up", 2)
    assert "500" in given_up["error"]
    path = f"/notifications/{given_up['id']}/send-again"
    assert api("client").post(path, {}).status_code == 404
    assert submit.client.post(path, {}).status_code == 204
    assert submit.client.post(path, {}).status_code == 404, "it waits already"
    assert notifications.send_notifications() == 1
    assert [one["state"] for one in listed()] == ["sent"]


def test_a_client_sees_only_its_own_notifications(submit, api, listed):
    job = submit(notify=[{"url": "https://example.org"}])
    cancel_job(job["id"], "operator:ann")
    assert [one["url"] for one in listed()] == ["https://example.org"]
    assert api("client").get("/notifications").json()["items"] == []
    assert len(api("operator").get("/notifications").json()["items"]) == 1


def test_responses_show_only_the_host_of_an_address(submit, listed):
    job = submit(notify=[{"url": "https://ann:pw@example.org/hooks/T0KEN?a=b", "on": ["CANCELLED"]}])
    cancel_job(job["id"], "operator:ann")
    shown = submit.client.get(f"/jobs/{job['id']}").json()["notify"]
    assert shown == [{"url": "https://example.org/***", "on": ["CANCELLED"]}]
    assert listed()[0]["url"] == "https://example.org/***"


def test_a_private_address_is_refused_although_alerts_may_use_it(submit, receiver, settings):
    settings.ALERTS = {"WEBHOOK_SECRET": SECRET, "WEBHOOK_ALLOW_PRIVATE": True}
    settings.JOBS = {**settings.JOBS, "NOTIFY_ALLOW_PRIVATE": False}
    job = submit(notify=[{"url": receiver.url}])
    cancel_job(job["id"], "operator:ann")
    assert notifications.send_notifications() == 0
    assert receiver.got == []
    error = AlertMessage.objects.get().error
    assert "private network" in error and "127.0.0.1" not in error


def test_a_receiver_that_fails_holds_up_no_other(submit, receiver, monkeypatch):
    calls = []
    post = notifications.post_notification

    def count(message, signing):
        calls.append(message.url)
        return post(message, signing)

    monkeypatch.setattr(notifications, "post_notification", count)
    for _ in range(3):
        cancel_job(submit(notify=[{"url": "http://127.0.0.1:9/"}])["id"], "operator:ann")
    cancel_job(submit(notify=[{"url": receiver.url}])["id"], "operator:ann")
    assert notifications.send_notifications() == 1
    assert sorted(calls) == sorted(["http://127.0.0.1:9/", receiver.url])


def test_the_messages_of_alerts_do_not_include_notifications(submit, receiver):
    cancel_job(submit(notify=[{"url": receiver.url}])["id"], "operator:ann")
    assert alerts.send_due_messages() == 0
    assert receiver.got == []


def test_old_notifications_are_deleted(submit, receiver, clock):
    cancel_job(submit(notify=[{"url": receiver.url}])["id"], "operator:ann")
    clock.advance(6 * 86400)
    alerts.note_incidents([])
    assert AlertMessage.objects.count() == 1
    clock.advance(2 * 86400)
    alerts.note_incidents([])
    assert AlertMessage.objects.count() == 0


@pytest.mark.parametrize(
    "notify",
    [
        [{"url": "example.org"}],
        [{"url": "ftp://example.org"}],
        [{"url": "https://"}],
        [{"url": "https://example.org:x/"}],
        [{"url": "https://example.org", "on": []}],
        [{"url": "https://example.org", "on": ["LATER"]}],
        [{"url": "https://example.org", "secret": "x"}],
        [{"url": "https://example.org"}] * 11,
        "https://example.org",
    ],
)
def test_wrong_addresses_and_states_are_refused_with_their_field(submitter, notify):
    for path, body in (("/jobs", {"action": SCRIPT}), ("/executions", {"name": "x", "steps": [step("a")]})):
        answer = submitter.post(path, {**body, "notify": notify})
        assert (answer.status_code, list(answer.json()["errors"])) == (400, ["notify"])


def test_a_trigger_has_no_token_whose_secret_could_sign(api):
    notify = [{"url": "https://example.org"}]
    for template in (
        {"name": "x", "steps": [step("a")], "notify": notify},
        {"name": "x", "steps": [step("a", notify=notify)]},
    ):
        body = {"name": "t", "interval_seconds": 60, "action": SCRIPT, "execution": template}
        answer = api("operator").post("/triggers", body)
        assert answer.status_code == 400
        assert "notify" in str(answer.json()["errors"])


def test_the_action_of_a_child_execution_has_no_addresses_because_responses_show_it(submitter):
    notify = [{"url": "https://example.org"}]
    for fields in ({"notify": notify, "steps": [step("a")]}, {"steps": [step("a", notify=notify)]}):
        answer = submitter.post("/jobs", {"action": {"type": "execution", "name": "x", **fields}})
        assert (answer.status_code, "notify" in str(answer.json()["errors"])) == (400, True)


def test_the_django_admin_shows_only_the_host_of_an_address(begin, submitter, staff):
    notify = [{"url": "https://example.org/T0KEN"}]
    run = begin(step("a", notify=notify), notify=notify, sealed=False)
    submitter.post(f"/executions/{run.id}/steps", {"steps": [step("b", notify=notify)]})
    client = staff("view_execution", "view_workerjob")
    for address in (f"execution/{run.id}", f"workerjob/{run.step('b')['job']}"):
        page = client.get(f"/admin/jobs/{address}/change/")
        assert page.status_code == 200
        assert "https://example.org/***" in (text := page.content.decode()) and "T0KEN" not in text


def test_a_receiver_that_takes_too_long_gets_its_other_notifications_later(submit, receiver, monkeypatch):
    monkeypatch.setattr(notifications, "SENDING_BUDGET", -1)
    for _ in range(2):
        cancel_job(submit(notify=[{"url": receiver.url}])["id"], "operator:ann")
    messages = notifications.sql.lease_message.fetch_rows(only=None, are_notifications=True, most=2)
    signing = notifications.read_secrets({message.token for message in messages})
    results = [refusal for _, refusal in notifications.post_in_order(signing, 0, messages)]
    assert (results[0], str(results[1])) == (None, "The calls before it took too long.")


def test_the_page_lists_what_could_not_be_delivered_and_sends_it_again(submit, receiver, clock, staff):
    cancel_job(submit(notify=[{"url": receiver.url}], name="report")["id"], "operator:ann")
    clock.advance(90_000)
    receiver.statuses.append(500)
    notifications.send_notifications()
    client = staff("change_maintenance", checks_csrf=False)
    page = client.get("/admin/instance/alerts/").content.decode()
    assert "Notifications that could not be delivered" in page and "report" in page
    id = AlertMessage.objects.get().pk
    address = f"/admin/instance/alerts/{id}/send-again/"
    assert address in page
    assert client.post(address, {"note": "fixed"}).status_code == 302
    assert notifications.send_notifications() == 1
    assert "could not be delivered" not in client.get("/admin/instance/alerts/").content.decode()


def test_dead_receivers_of_clients_hide_no_alert_that_could_not_be_delivered(submit, staff, monkeypatch):
    monkeypatch.setattr("controlplane.console.views.alerts.MESSAGES_SHOWN", 2)
    AlertMessage.objects.create(event="test", channel="webhook 1", payload={}, next_try_at=None, error="lost alert")
    for number in range(3):
        cancel_job(submit(notify=[{"url": "https://example.org/"}], name=f"report {number}")["id"], "operator:ann")
    AlertMessage.objects.filter(url__isnull=False).update(next_try_at=None)
    page = staff("change_maintenance").get("/admin/instance/alerts/").content.decode()
    alerts, clients = page.index("Alerts that could not be delivered"), page.index("Notifications that could not be")
    assert alerts < page.index("lost alert") < clients < page.index("report 2") < page.index("report 1")
    assert "report 0" not in page


def test_a_wrong_address_of_one_client_delays_no_other_client(api, submit, receiver):
    cancel_job(submit(notify=[{"url": f"{receiver.url}/wrong"}])["id"], "operator:ann")
    other = api("client").post("/jobs", {"action": SCRIPT, "notify": [{"url": receiver.url}]}).json()
    cancel_job(other["id"], "operator:ann")
    receiver.statuses.append(404)
    assert notifications.send_notifications() == 1
    assert sorted(AlertMessage.objects.values_list("error", "tries")) == [
        ("", 1),
        ("The receiver responded with 404.", 1),
    ]


def test_a_message_that_was_not_tried_is_not_given_up(submit, receiver, clock, monkeypatch):
    cancel_job(submit(notify=[{"url": receiver.url}])["id"], "operator:ann")
    clock.advance(90_000)
    with monkeypatch.context() as patch:
        patch.setattr(notifications, "RUNNING_CALLS_LIMIT", 0)
        notifications.send_due_notifications()
    message = AlertMessage.objects.get()
    assert (message.tries, message.next_try_at is None) == (0, False)
    clock.advance(11)
    assert notifications.send_notifications() == 1


def test_one_run_of_a_process_sends_notifications_at_a_time(submit, receiver):
    cancel_job(submit(notify=[{"url": receiver.url}])["id"], "operator:ann")
    with notifications.running:
        assert notifications.send_notifications() == 0
    assert notifications.send_notifications() == 1


def test_a_client_with_many_notifications_leaves_room_for_others(api, submit, receiver):
    for _ in range(6):
        cancel_job(submit(notify=[{"url": receiver.url}])["id"], "operator:ann")
    other = api("client").post("/jobs", {"action": SCRIPT, "notify": [{"url": receiver.url}]}).json()
    cancel_job(other["id"], "operator:ann")
    leased = notifications.sql.lease_message.fetch_rows(only=None, are_notifications=True, most=5)
    assert len(leased) == 5 and len({message.token for message in leased}) == 2


def test_states_are_named_once(submitter):
    answer = submitter.post(
        "/jobs", {"action": SCRIPT, "notify": [{"url": "https://example.org", "on": ["FAILED"] * 1000}]}
    )
    assert answer.status_code == 400 and "notify" in answer.json()["errors"]


def test_a_receiver_that_sends_a_byte_now_and_then_is_cut_off(monkeypatch):
    """Without the deadline this test would never end."""
    monkeypatch.setattr(alert_calls, "CALL_DEADLINE", 0.5)
    ended = threading.Event()

    def trickle(listener):
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
            while not ended.wait(0.05):
                connection.sendall(b"x")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=trickle, args=[listener])
        thread.start()
        try:
            with suppress(urllib3.exceptions.HTTPError):  # a part of a header may count as a header
                alert_calls.call_url(
                    "POST", f"http://127.0.0.1:{listener.getsockname()[1]}/", {}, b"{}", allow_private=True
                )
        finally:
            ended.set()
            thread.join()
