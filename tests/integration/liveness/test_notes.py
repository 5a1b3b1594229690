"""Every call of an operator takes a note, which is stored with actor and time, over the API and on the pages."""

import pytest
from django.core.management import call_command

from jobs.models import WorkerJob
from liveness.models import Brake, ServerEvent
from tests.support.executions import SCRIPT, step

pytestmark = pytest.mark.django_db


def recorded_events():
    """Return the actions by hand: (action, subject, actor, note)."""
    events = ServerEvent.objects.exclude(action="").order_by("pk")
    return [(e.action, f"{e.subject_type} {e.subject_id}", e.actor, e.note) for e in events]


WHO = "operator:a operator"


@pytest.mark.parametrize("verb", ["cancel", "fail", "resubmit"])
@pytest.mark.parametrize("why", ["the disk is full", None])
def test_an_operators_action_on_a_job_has_an_event(api, submit, worker, verb, why):
    job = submit()
    worker().hold()
    answer = api("operator").post(f"/jobs/{job['id']}/{verb}", {"note": why} if why else {})
    assert answer.status_code == 200, answer.json()
    assert recorded_events() == [(f"{verb}_job", f"job {job['id']}", WHO, why or "")]


def test_what_is_refused_has_none(api, submit):
    job = submit()
    assert api("operator").post(f"/jobs/{job['id']}/resubmit", {"note": "again"}).status_code == 409
    assert recorded_events() == []


def test_the_reason_of_a_failure_is_the_note_unless_it_is_given(api, submit):
    for body, reason, why in (
        ({"note": "n"}, "n", "n"), ({"reason": "r"}, "r", "r"), ({"reason": "r", "note": "n"}, "r", "n"),
    ):  # fmt: skip
        job = submit()
        api("operator").post(f"/jobs/{job['id']}/fail", body)
        assert WorkerJob.objects.get(pk=job["id"]).error["message"] == reason
        assert recorded_events()[-1][3] == why


def test_an_operators_action_on_an_execution_has_an_event(api, begin):
    run, operator = begin(step("a")), api("operator")
    operator.post(f"/executions/{run.id}/cancel", {"note": "wrong day"})
    assert operator.post(f"/executions/{run.id}/rerun", {"note": "right day"}).status_code == 201
    assert recorded_events() == [
        ("cancel_execution", f"execution {run.id}", WHO, "wrong day"),
        ("rerun_execution", f"execution {run.id}", WHO, "right day"),
    ]


def test_a_client_may_add_a_note_too(submit, caplog):
    job = submit()
    assert submit.client.post(f"/jobs/{job['id']}/cancel", {"note": "not needed"}).status_code == 200
    assert recorded_events() == [("cancel_job", f"job {job['id']}", "client:a client", "not needed")]
    assert "not needed" in caplog.text


def test_what_is_done_to_a_trigger_has_an_event(api):
    operator = api("operator")
    template = {"name": "report", "steps": [step("a")]}
    body = {"name": "hourly", "interval_seconds": 3600, "action": SCRIPT, "execution": template, "note": "new"}
    trigger = operator.post("/triggers", body).json()
    assert "note" not in trigger
    at = f"/triggers/{trigger['id']}"
    assert operator.call("PATCH", at, {"enabled": False, "note": "too much"}).status_code == 200
    assert operator.post(f"{at}/evaluate", {"note": "once"}).status_code == 201
    assert operator.call("DELETE", f"{at}?note=gone", b"").status_code == 204
    assert recorded_events() == [
        (f"{verb}_trigger", f"trigger {trigger['id']}", WHO, why)
        for verb, why in (("create", "new"), ("change", "too much"), ("evaluate", "once"), ("delete", "gone"))
    ]


def test_the_release_of_a_brake_takes_a_note_as_its_reason(api):
    for body in ({"reason": "they are gone"}, {"note": "they are gone"}):
        Brake.objects.all().delete()
        Brake.objects.create(type="WORKER", engaged_observed=0, silent=3, alive=3)
        assert api("operator").post("/brake/release", body).json() == {"released": ["WORKER"]}
        assert recorded_events()[-1][3] == "they are gone"
    assert api("operator").post("/brake/release", {}).status_code == 400
    Brake.objects.all().delete()
    Brake.objects.create(type="WORKER", engaged_observed=0, silent=3, alive=3)
    call_command("release_brake", "--note", "gone")
    assert recorded_events()[-1][3] == "gone"


def test_a_note_is_a_text(api, submit):
    job = submit()
    for note in (1, None, "x" * 1001, ["a"]):
        assert api("operator").post(f"/jobs/{job['id']}/cancel", {"note": note}).status_code == 400


def test_the_event_of_an_action_over_the_api_leads_to_its_job_on_the_page(api, submit, admin_client):
    job = submit()
    api("operator").post(f"/jobs/{job['id']}/cancel", {"note": "wrong input"})
    page = admin_client.get("/admin/instance/activity/").content.decode()
    assert "wrong input" in page
    assert f"/jobs/{job['id']}/" in page
