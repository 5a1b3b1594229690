"""Pages of incidents: people acknowledge, own and comment."""

import pytest
from django.contrib.auth.models import User

from jobs.models import Incident
from jobs.services import alert_rules, alerts
from liveness.models import ServerEvent
from tests.integration.console.test_page_actions import words
from tests.support.operators import actions
from tests.support.people import employ

pytestmark = pytest.mark.django_db
AT = "/admin/instance/alerts/"


@pytest.fixture
def incident():
    alerts.note_incidents([alert_rules.build_condition("server_lost", "2 servers of cluster east lost: a, b", "east")])
    return Incident.objects.get()


@pytest.fixture
def browser(staff):
    return staff("handle_incident", checks_csrf=False)


def test_an_incident_has_a_page_that_the_list_links_to(reader, incident):
    assert f'href="{AT}{incident.pk}/"' in reader.get(AT).content.decode()
    page = words(reader.get(f"{AT}{incident.pk}/"))
    for text in ("2 servers of cluster east lost: a, b", "OPEN", "critical", "Not acknowledged", "Owner: none"):
        assert text in page, text
    assert "Add comment" not in page


def test_an_incident_is_acknowledged_once(browser, incident):
    page = browser.get(f"{AT}{incident.pk}/").content.decode()
    assert "Acknowledge</button>" in page
    assert browser.post(f"{AT}{incident.pk}/acknowledge/").status_code == 302
    page = browser.get(f"{AT}{incident.pk}/").content.decode()
    assert "Acknowledged by ann" in page and "Acknowledge</button>" not in page
    assert "Acknowledged by ann" in browser.get(AT).content.decode()
    again = browser.post(f"{AT}{incident.pk}/acknowledge/")
    assert again.status_code == 409 and "already acknowledged by ann" in again.content.decode()
    [event] = ServerEvent.objects.filter(action="acknowledge_incident")
    assert (event.subject_type, event.subject_id, event.actor) == ("incident", str(incident.pk), "operator:ann")
    assert "incident 2 servers of cluster east lost" in words(browser.get("/admin/instance/activity/"))


def test_an_ended_incident_cannot_be_acknowledged(browser, incident, clock):
    clock.advance(120)
    alerts.note_incidents([])
    assert "Acknowledge</button>" not in browser.get(f"{AT}{incident.pk}/").content.decode()
    assert browser.post(f"{AT}{incident.pk}/acknowledge/").status_code == 409


def test_an_incident_gets_an_owner(browser, incident):
    User.objects.create_user("bob", is_staff=True)
    User.objects.create_user("visitor")
    assert browser.post(f"{AT}{incident.pk}/assign/", {"owner": "", "seen": "", "me": "1"}).status_code == 302
    page = browser.get(f"{AT}{incident.pk}/").content.decode()
    assert "Owner: ann" in page and 'value="bob"' in page and "visitor" not in page
    assert browser.post(f"{AT}{incident.pk}/assign/", {"owner": "bob", "seen": "ann"}).status_code == 302
    assert "Owner: bob" in browser.get(AT).content.decode()
    late = browser.post(f"{AT}{incident.pk}/assign/", {"owner": "ann", "seen": "ann"})
    assert late.status_code == 409 and "The owner is bob now" in late.content.decode()
    wrong = browser.post(f"{AT}{incident.pk}/assign/", {"owner": "visitor", "seen": "bob"})
    assert wrong.status_code == 200 and Incident.objects.get().owner == "bob"
    changes = ServerEvent.objects.filter(action="assign_incident").order_by("pk").values_list("changes", flat=True)
    assert [change["owner"] for change in changes] == [{"old": "", "new": "ann"}, {"old": "ann", "new": "bob"}]


def test_comments_are_shown_with_their_author(browser, incident):
    assert browser.post(f"{AT}{incident.pk}/comment/", {"comment": "the switch is dead"}).status_code == 302
    page = words(browser.get(f"{AT}{incident.pk}/"))
    assert "Comment on incidentby operator:annthe switch is dead" in page
    assert browser.post(f"{AT}{incident.pk}/comment/", {"comment": ""}).status_code == 200
    assert actions(subject_type="incident") == ["comment_on_incident"]


def test_a_reader_of_incidents_may_not_act_on_them(reader, incident):
    for action in ("acknowledge", "assign", "comment"):
        assert reader.post(f"{AT}{incident.pk}/{action}/", {"comment": "x"}).status_code == 403, action


def test_an_incident_about_objects_that_the_user_may_not_view_is_unknown(client, incident):
    client.force_login(employ("jobs.view_workerjob", "jobs.handle_incident"))
    assert client.get(f"{AT}{incident.pk}/").status_code == 404
    assert client.post(f"{AT}{incident.pk}/acknowledge/").status_code == 403
