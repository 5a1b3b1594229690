"""Channels of alerts that people add, test and remove on the page."""

import pytest

from jobs.models import AlertChannel, AlertMessage
from jobs.services import alert_rules, alerts
from liveness.models import ServerEvent
from tests.integration.console.test_page_actions import words
from tests.support.operators import actions

pytestmark = pytest.mark.django_db
AT = "/admin/instance/alerts/"
MAIL = {"kind": "email", "address": "ops@example.org", "note": ""}
HOOK = {"kind": "webhook", "address": "https://hooks.example.org/T0KEN/s3cret", "note": "for the night"}
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYqr"


@pytest.fixture
def browser(staff):
    return staff("add_alertchannel", "delete_alertchannel", "change_maintenance", checks_csrf=False)


def test_a_channel_is_added_and_gets_messages(browser, mailoutbox):
    assert "Add channel…" in browser.get(AT).content.decode()
    assert browser.post(f"{AT}channels/add/", MAIL).status_code == 302
    channel = AlertChannel.objects.get()
    assert f"{channel.name}ops@example.orgon this page" in words(browser.get(AT))
    alerts.note_incidents([alert_rules.build_condition("server_lost", "1 server of cluster east lost: a", "east")])
    alerts.send_due_messages()
    assert [message.to for message in mailoutbox] == [["ops@example.org"]]


def test_the_address_of_a_webhook_is_not_shown_again(browser, settings):
    settings.ALERTS = {"WEBHOOK_SECRET": SECRET}
    assert browser.post(f"{AT}channels/add/", HOOK).status_code == 302
    page = browser.get(AT).content.decode()
    assert "https://hooks.example.org/…" in page and "s3cret" not in page
    [event] = ServerEvent.objects.filter(action="add_channel")
    assert event.actor == "operator:ann" and "s3cret" not in str(event.changes) and "T0KEN" not in str(event.changes)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (HOOK, "Set ALERTS_WEBHOOK_SECRET first"),
        ({**HOOK, "address": "example.org"}, "begins with http:// or https://"),
        ({**MAIL, "address": "nobody"}, "no e-mail address"),
        ({**MAIL, "address": "a@example.org b@example.org"}, "has no spaces"),
        ({"kind": "apprise", "address": "slack"}, "begins with its service"),
        ({"kind": "pigeon", "address": "x"}, "Select a valid choice"),
        ({**MAIL, "address": ""}, "This field is required"),
    ],
)
def test_an_impossible_channel_is_refused_with_the_reason(browser, wrong, named):
    answer = browser.post(f"{AT}channels/add/", wrong)
    assert (answer.status_code, AlertChannel.objects.count()) == (200, 0)
    assert named in answer.content.decode()


def test_each_channel_is_tested_by_itself(browser, settings, mailoutbox):
    settings.ALERTS = {"EMAIL_TO": "first@example.org"}
    browser.post(f"{AT}channels/add/", MAIL)
    channel = AlertChannel.objects.get()
    at = f"{AT}test/?channel={channel.name}"
    assert channel.name in browser.get(at).content.decode()
    assert browser.post(at).status_code == 302
    alerts.send_due_messages()
    assert [message.to for message in mailoutbox] == [["ops@example.org"]]
    browser.post(f"{AT}test/?channel=email 1")
    alerts.send_due_messages()
    assert [message.to for message in mailoutbox[1:]] == [["first@example.org"]]
    assert "does not apply" in browser.post(f"{AT}test/?channel=email 9").content.decode()


def test_a_removed_channel_gets_no_more_messages(browser, mailoutbox):
    browser.post(f"{AT}channels/add/", MAIL)
    channel = AlertChannel.objects.get()
    alerts.write_test()
    at = f"{AT}channels/{channel.pk}/remove/"
    assert "No more messages" in browser.get(at).content.decode()
    assert browser.post(at, {"note": ""}).status_code == 302
    alerts.send_due_messages()
    assert mailoutbox == [] and "was removed" in AlertMessage.objects.get().error
    assert browser.post(at, {"note": ""}).status_code == 404
    assert actions() == ["add_channel", "remove_channel"]


def test_a_reader_may_not_change_channels(reader):
    channel = AlertChannel.objects.create(kind="email", address="ops@example.org")
    page = reader.get(AT).content.decode()
    assert "ops@example.org" in page and "Add channel…" not in page and "Remove…" not in page
    for path in ("channels/add/", f"channels/{channel.pk}/remove/"):
        assert reader.get(AT + path).status_code == 403, path
