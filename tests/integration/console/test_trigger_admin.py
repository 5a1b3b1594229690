"""Triggers in the admin: the form refuses what the API refuses; and an evaluation by hand."""

import json
import re

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User

from jobs.models import Trigger
from liveness.models import ALL_NAMESPACES

pytestmark = pytest.mark.django_db

CHANGELIST = "/admin/jobs/trigger/"
FORM = {
    "name": "nightly",
    "enabled": "on",
    "cron": "0 2 * * *",
    "timezone": "Europe/Zurich",
    "missed": "skip",
    "action": json.dumps({"type": "script", "command": "true"}),
    "tags": "gpu, big",
    "priority": "0",
    "timeout_seconds": "300",
    "max_retries": "1",
    "execution": json.dumps({"name": "n", "steps": [{"key": "a", "action": {"type": "script", "command": "date"}}]}),
    "slots-TOTAL_FORMS": "0",
    "slots-INITIAL_FORMS": "0",
}


@pytest.fixture
def staff(client):
    """Return a user with these permissions: `staff("add_trigger")`."""

    def staff(*codenames):
        user = User.objects.create_user("ann", is_staff=True)
        user.user_permissions.set(Permission.objects.filter(codename__in=[*codenames, ALL_NAMESPACES]))
        client.force_login(user)
        return client

    return staff


def test_a_trigger_is_made_and_changed_with_its_next_slot(staff):
    browser = staff("add_trigger", "change_trigger", "view_trigger")
    answer = browser.post(f"{CHANGELIST}add/", FORM)
    assert answer.status_code == 302, answer.context["errors"]
    trigger = Trigger.objects.get()
    assert trigger.action == {"type": "script", "runner": "local", "command": "true"}
    assert trigger.tags == ["big", "gpu"]
    assert trigger.next_slot_at is not None
    page = browser.get(f"{CHANGELIST}{trigger.pk}/change/")
    assert page.status_code == 200
    changed = browser.post(f"{CHANGELIST}{trigger.pk}/change/", {**FORM, "enabled": ""})
    assert changed.status_code == 302
    trigger.refresh_from_db()
    assert (trigger.enabled, trigger.next_slot_at) == (False, None)


def test_the_form_has_the_schedule_fields_of_the_api_and_empties_them(staff):
    browser = staff("add_trigger", "change_trigger", "view_trigger")
    fields = {
        "start_at_0": "2030-01-31", "start_at_1": "08:00:00", "end_at_0": "2031-01-31", "end_at_1": "08:00:00",
        "jitter_seconds": "30", "missed": "fire_all", "overlap": "queue_one", "pause_after_failures": "3",
        "worker_slots": "2",
    }  # fmt: skip
    added = browser.post(f"{CHANGELIST}add/", {**FORM, **fields})
    assert added.status_code == 302, added.context["errors"]
    trigger = Trigger.objects.get()
    assert (trigger.start_at.isoformat(), trigger.end_at.year) == ("2030-01-31T08:00:00+00:00", 2031)
    assert (trigger.jitter_seconds, trigger.missed, trigger.overlap) == (30, "fire_all", "queue_one")
    assert (trigger.pause_after_failures, trigger.worker_slots) == (3, 2)
    address = f"{CHANGELIST}{trigger.pk}/change/"
    page = browser.get(address).content.decode()
    assert all(f'name="{name}"' in page for name in fields)
    changed = browser.post(address, {**FORM, "cron": "", "interval_seconds": "60", "action": ""})
    assert changed.status_code == 302, changed.context["errors"]
    trigger.refresh_from_db()
    assert (trigger.cron, trigger.interval_seconds, trigger.action) == (None, 60, None)
    assert (trigger.start_at, trigger.end_at, trigger.pause_after_failures) == (None, None, None)
    assert (trigger.overlap, trigger.worker_slots) == ("queue_one", 2)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("pause_after_failures", "0", "greater than or equal to 1"),
        ("jitter_seconds", "-1", "greater than or equal to 0"),
        ("overlap", "sometimes", "valid choice"),
        ("cron", "sometimes", "cron expression"),
        ("timezone", "Mars", "time zone"),
        ("interval_seconds", "5", "Give either cron or interval_seconds"),
        ("action", '{"type": "rocket"}', "script"),
        ("action", "not json", "JSON"),
        ("execution", '{"name": "x", "steps": []}', "empty"),
    ],
)
def test_invalid_values_are_refused_with_a_hint(staff, field, value, words):
    refused = staff("add_trigger", "view_trigger").post(f"{CHANGELIST}add/", {**FORM, field: value})
    assert refused.status_code == 200
    assert words in refused.content.decode()
    assert not Trigger.objects.exists()


def test_a_form_sent_twice_evaluates_a_trigger_once(staff, api):
    body = {"name": "t", "interval_seconds": 3600, "action": json.loads(FORM["action"])}
    body["execution"] = json.loads(FORM["execution"])
    trigger = api("operator").post("/triggers", body).json()["id"]
    browser = staff("view_trigger", "evaluate_trigger")
    shown = browser.get(CHANGELIST).content.decode()
    [key] = re.findall(r'name="key" value="([^"]+)"', shown)
    choice = {"action": "evaluate_now", "_selected_action": [trigger], "key": key}
    for _ in range(2):
        browser.post(CHANGELIST, choice)
        Trigger.objects.get().slots.update(outcome="NOT_FIRED")
    assert Trigger.objects.get().slots.count() == 1


def test_a_user_with_the_permission_evaluates_one_now_and_it_is_logged(staff, api):
    body = {"name": "t", "interval_seconds": 3600, "action": json.loads(FORM["action"])}
    body["execution"] = json.loads(FORM["execution"])
    trigger = api("operator").post("/triggers", body).json()["id"]
    choice = {"action": "evaluate_now", "_selected_action": [trigger]}
    browser = staff("view_trigger")
    assert "evaluate_now" not in browser.get(CHANGELIST).content.decode()
    browser.post(CHANGELIST, choice)
    assert not Trigger.objects.get().slots.exists()
    user = User.objects.get()
    user.user_permissions.add(Permission.objects.get(codename="evaluate_trigger"))
    browser.post(CHANGELIST, choice)
    assert Trigger.objects.get().slots.get().by == "operator:ann"
    assert LogEntry.objects.get().change_message == "Evaluated by hand."
    again = browser.post(CHANGELIST, choice, follow=True)
    assert "already being evaluated" in again.content.decode()
