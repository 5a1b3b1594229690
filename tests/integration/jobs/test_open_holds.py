"""Holds in force are shown by the verdict, counted by a metric, and cause an alert when they are old."""

import re

import pytest

from jobs.choices import HoldOf
from jobs.models import Incident
from jobs.services import alert_rules, holds
from jobs.services.alerts import run_alerts
from tests.support.executions import step

DAY = 86400


@pytest.fixture
def hold(clock):
    return lambda of, value, **fields: holds.create_hold(HoldOf(of), value, "operator:ann", "new driver", **fields)[0]


@pytest.fixture
def concerns(api):
    viewer = api("viewer")

    def concerns():
        found = viewer.get("/instance").json()["verdict"]["concerns"]
        return [one for one in found if one["kind"] == "hold_open"]

    return concerns


def test_a_hold_is_a_note_with_its_age_and_the_jobs_that_wait(hold, concerns, submit, clock, worker):
    worker(tags=["gpu", "script"])
    assert concerns() == []
    hold("tag", "gpu")
    submit(tags=["gpu"])
    submit(tags=["gpu"])
    submit()
    clock.advance(7200)
    [concern] = concerns()
    assert concern["text"] == "Tag gpu has been on hold for 2 h: 2 jobs wait"
    assert (concern["tone"], concern["jobs"], round(concern["seconds"])) == ("note", 2, -7200)


def test_each_kind_of_hold_counts_its_jobs(hold, concerns, submit, worker, api):
    worker(tags=["queue:mail", "script"])
    submit(limits=["stripe"])
    submit(tags=["queue:mail"])
    run = submit.client.post("/executions", {"name": "nightly", "steps": [step("a"), step("b")]}).json()["id"]
    for of, value, words, jobs in (
        ("action", "script", "Action script", 4),
        ("limit", "stripe", "Limit stripe", 1),
        ("queue", "mail", "Queue mail", 1),
        ("namespace", "default", "Namespace default", 4),
        ("execution", run, "Execution nightly", 2),
        ("namespace", "red", "Namespace red", 0),
    ):
        held = hold(of, value)
        [concern] = concerns()
        assert concern["text"].startswith(f"{words} has been on hold for ") and concern["jobs"] == jobs, of
        holds.release_hold(held.pk, "operator:ann")


def test_a_held_trigger_is_shown_by_its_name(hold, concerns, api):
    body = {"name": "t", "interval_seconds": 60, "action": {"type": "script", "command": "true"}}
    execution = {"name": "x", "steps": [step("a")]}
    hold("trigger", api("operator").post("/triggers", {**body, "execution": execution}).json()["id"])
    [concern] = concerns()
    assert concern["text"].startswith("Trigger t has been on hold") and concern["text"].endswith("no jobs wait")


def test_more_than_three_holds_are_one_concern(hold, concerns, clock):
    for tag in "abc":
        hold("tag", tag)
    assert len(concerns()) == 3
    for tag in range(20):
        hold("tag", f"{tag}")
    clock.advance(60)
    [concern] = concerns()
    assert concern["text"] == "23 holds are in force, the oldest for 1 min: no jobs wait"


def test_a_hold_is_a_worry_after_a_day_and_not_just_before(hold, concerns, api, clock, settings):
    held = hold("tag", "gpu")
    clock.advance(DAY - 1)
    assert concerns()[0]["tone"] == "note"
    clock.advance(2)
    assert concerns()[0]["tone"] == "worry"
    settings.ALERTS = {"HOLD_OPEN": None}
    assert concerns()[0]["tone"] == "note"
    holds.release_hold(held.pk, "operator:ann")
    assert concerns() == []


def test_the_overview_links_to_the_holds(hold, reader, submit, worker, clock):
    worker()
    submit()
    hold("action", "script")
    clock.advance(DAY + 1)
    page = reader.get("/admin/instance/").content.decode()
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", page))
    assert "Action script has been on hold for" in text
    assert '<a href="/admin/instance/holds/">1 job waits</a>' in page and "Show holds" in page


def test_an_old_hold_causes_an_alert_until_it_is_released(hold, clock, settings):
    settings.ALERTS = {"SETTLE_AFTER": 60}
    held = hold("tag", "gpu")
    clock.advance(DAY - 30)
    run_alerts()
    assert not Incident.objects.filter(rule="hold_open").exists()
    clock.advance(60)
    run_alerts()
    incident = Incident.objects.get(rule="hold_open")
    assert incident.summary == "Tag gpu has been on hold for 1 d: no jobs wait" and incident.severity == "warning"
    [listed] = incident.details["holds"]
    assert (listed["id"], listed["note"], listed["by"]) == (str(held.pk), "new driver", "operator:ann")
    holds.release_hold(held.pk, "operator:ann")
    clock.advance(61)
    run_alerts()
    clock.advance(61)
    run_alerts()
    incident.refresh_from_db()
    assert incident.ended_at is not None


def test_several_old_holds_are_one_alert_that_each_of_them_joins(hold, clock):
    figures = {"holds": [{"id": f"{n}", "kind": "tag", "value": "gpu", "name": None, "note": "", "by": "a", "jobs": 0,
                          "seconds": DAY + 1, "total": 2} for n in range(2)]}  # fmt: skip
    [condition] = alert_rules.find_old_holds(figures["holds"])
    assert condition["summary"].endswith("(2 old holds in all)") and condition["items"] == ["0", "1"]


def test_the_metric_counts_holds_by_what_they_hold(hold, api, client, clock):
    hold("tag", "gpu")
    hold("tag", "cpu")
    hold("action", "script")
    headers = {"Authorization": f"Bearer {api('viewer').token}"}
    text = client.get("/metrics", headers=headers).content.decode()
    assert 'controlplane_holds{of="tag"} 2.0' in text and 'controlplane_holds{of="action"} 1.0' in text
    assert 'controlplane_holds{of="trigger"} 0.0' in text
