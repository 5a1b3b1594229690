"""Alert pages: incidents, rules, mutes, outbox, and operator actions."""

import re
from uuid import UUID

import pytest
from django.contrib.admin.models import LogEntry

from controlplane.console.views.alerts import RULES
from jobs.models import AlertMessage, AlertMute, Incident
from jobs.services import alert_rules, alerts
from liveness.models import ServerEvent
from liveness.selectors.clock import database_time
from tests.integration.console.test_page_actions import act, words
from tests.support.people import employ

pytestmark = pytest.mark.django_db

AT = "/admin/instance/alerts/"
BRAKE = alert_rules.build_condition("brake", "The brake holds WORKER", "WORKER")
LOST = alert_rules.build_condition("server_lost", "2 servers of cluster east lost: a, b", "east")
QUARANTINE = alert_rules.build_condition("quarantine", "1 job in quarantine")


@pytest.fixture
def channels(settings):
    """Configure a webhook that nobody listens at and an e-mail address. Only the tests themselves send."""
    settings.ALERTS = {
        "WEBHOOK_URLS": "http://127.0.0.1:9/hook",
        "WEBHOOK_SECRET": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYqr",
        "EMAIL_TO": "ops@example.org",
    }


def section(page, heading):
    return page.partition(f"<h2>{heading}</h2>")[2].partition("<h2>")[0]


def test_the_page_names_every_rule_of_alerts():
    assert tuple(RULES) == alert_rules.RULES


def test_incidents_are_filtered_by_rule_and_cluster_and_show_their_messages(channels, staff, clock):
    alerts.note_incidents([BRAKE, LOST])
    clock.advance(120)
    alerts.note_incidents([LOST])
    browser = staff()
    page = browser.get(AT).content.decode()
    assert "cluster east lost" in section(page, "Open incidents")
    assert "The brake holds WORKER" in section(page, "Past incidents")
    assert "not yet sent, 0 attempts" in section(page, "Open incidents")
    assert "webhook 1" in section(page, "Open incidents")
    for query, seen, unseen in (("rule=brake", "holds WORKER", "east lost"), ("cluster=east", "east lost", "holds")):
        page = words(browser.get(f"{AT}?{query}")).partition("Rules")[0]
        assert seen in page and unseen not in page


def test_past_incidents_are_paged_and_open_ones_are_on_the_first_page_only(staff, clock):
    now = database_time()
    for number in range(60):
        Incident.objects.create(rule="brake", subject=str(number), summary=f"past {number}.", ended_at=now)
    Incident.objects.create(rule="brake", subject="", summary="open now")
    browser = staff()
    first = browser.get(AT).content.decode()
    rest = browser.get(AT + re.search(r'<a href="(\?before=[^"]+)">Older', first)[1]).content.decode()
    shown = re.findall(r">past \d+\.<", first + rest)
    assert len(shown) == len(set(shown)) == 60
    assert ("open now" in first, "open now" in rest) == (True, False)


def test_the_outbox_shows_the_outcome_of_each_message(channels, staff, clock, mailoutbox):
    alerts.note_incidents([LOST])
    alerts.send_due_messages()
    browser = staff()
    page = words(browser.get(AT)).partition("Outbox")[2]
    assert re.search(r"opened server_lost east SENT email 1 1", page)
    assert re.search(r"opened server_lost east WAITING webhook 1 1 attempt.*private network.*next attempt in", page)
    AlertMessage.objects.filter(sent_at=None).update(next_try_at=None)
    assert "GIVEN UP" in words(browser.get(AT)).partition("Outbox")[2]


def test_muting_and_unmuting_a_rule_writes_an_event_and_a_log_entry(staff, clock):
    browser = staff("change_maintenance")
    address = "alerts/mute/?rule=brake"
    assert act(browser, address, note="a new switch", duration="2h")["Location"] == AT
    mute = AlertMute.objects.get()
    assert (mute.rule, mute.by, mute.note) == ("brake", "operator:ann", "a new switch")
    assert (mute.until - database_time()).total_seconds() == 7200
    page = words(browser.get(AT))
    assert "muted for 2 h more by operator:ann: a new switch" in page
    assert act(browser, "alerts/unmute/?rule=brake", note="").status_code == 302
    assert "MUTED" not in words(browser.get(AT))
    assert [*ServerEvent.objects.order_by("id").values_list("action", "actor", "reason")] == [
        ("mute_alerts", "operator:ann", "a new switch"),
        ("unmute_alerts", "operator:ann", ""),
    ]
    assert LogEntry.objects.count() == 2
    again = browser.get(f"{AT}unmute/?rule=brake")
    assert "This action does not apply" in words(again)


def test_invalid_input_mutes_nothing(staff):
    browser = staff("change_maintenance", checks_csrf=False)
    for duration in ("soon", "none", "", "0s"):
        assert browser.post(f"{AT}mute/?rule=brake", {"duration": duration, "note": "n"}).status_code == 200, duration
    assert browser.get(f"{AT}mute/?rule=nonsense").status_code == 404
    assert browser.post(f"{AT}unmute/?rule=brake", {"note": "n"}).status_code == 409
    assert not AlertMute.objects.exists()
    assert not ServerEvent.objects.exists()


def test_a_test_message_goes_through_the_outbox_and_does_not_block_the_request(channels, staff, clock, mailoutbox):
    browser = staff("change_maintenance")
    assert act(browser, "alerts/test/")["Location"] == AT
    assert [(row.event, row.channel, row.tries) for row in AlertMessage.objects.order_by("channel")] == [
        ("test", "email 1", 0), ("test", "webhook 1", 0),
    ]  # fmt: skip
    assert "will be sent at the next check" in words(browser.get(AT))
    alerts.send_due_messages()
    assert [mail.to for mail in mailoutbox] == [["ops@example.org"]]


def test_without_a_channel_the_page_shows_that_no_messages_are_sent(staff):
    browser = staff("change_maintenance")
    page = words(browser.get(AT))
    assert "No messages are sent, because no channel is set" in page
    assert "Send a test" not in page
    browser.get(f"{AT}test/")
    act(browser, "alerts/test/")
    assert not AlertMessage.objects.exists()


def test_incidents_need_view_permissions_and_mutes_need_their_own(channels, client, clock):
    alerts.note_incidents([LOST, QUARANTINE])
    for may, seen, unseen in (
        ("liveness.view_server", "server_lost", "quarantine"),
        ("jobs.view_workerjob", "quarantine", "server_lost"),
    ):
        client.force_login(employ(may))
        page = client.get(AT).content.decode().partition('id="live"')[2]
        assert seen in page
        assert f"<code>{unseen}</code>" not in page
        assert "Mute" not in page
        assert client.get(f"{AT}mute/").status_code == 403


def test_the_page_takes_eight_queries_at_most(channels, client, clock, django_assert_max_num_queries):
    alerts.note_incidents([LOST, QUARANTINE, BRAKE])
    alerts.mute("all", 60, "operator:ann", "n")
    client.force_login(employ("liveness.view_server", "jobs.view_workerjob", "liveness.change_maintenance"))
    for query in ("", "?rule=brake&cluster=WORKER", f"?before={UUID(int=2**128 - 1)}"):
        with django_assert_max_num_queries(8):
            assert client.get(AT + query).status_code == 200
