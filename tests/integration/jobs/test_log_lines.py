"""Log lines that operators search for: one for each refusal, with server, job, attempt and reason."""

from uuid import uuid4

import pytest
from structlog.testing import capture_logs

from liveness.models import Server, ServerEvent
from liveness.services import detection

pytestmark = pytest.mark.django_db


def lines(logs, *words):
    return [line for line in logs if all(word in line["event"] for word in words)]


def test_a_refused_claim_is_a_line(worker, api):
    one = worker()
    api("operator").post(f"/servers/{one.id}/cordon", {"note": "disk"})
    with capture_logs() as logs:
        assert one.post(f"/servers/{one.id}/claims", {"limit": 1}).status_code == 409
    [line] = lines(logs, "Claims refused")
    assert (line["server"], line["reason"], line["log_level"]) == (one.id, "server_cordoned", "warning")


def test_a_refused_registration_is_a_line(api):
    registration = {"type": "WORKER", "name": "w", "instance_id": str(uuid4())}
    with capture_logs() as logs:
        assert api("client").post("/servers", registration).status_code == 403
    [line] = lines(logs, "Registration refused")
    assert line["reason"] == "wrong_role"


def test_a_refused_heartbeat_is_a_line(worker):
    one = worker()
    Server.objects.update(state="DISCONNECTED")
    with capture_logs() as logs:
        assert one.beat(state="RUNNING").status_code == 409
    [line] = lines(logs, "Heartbeat refused")
    assert (line["server"], line["reason"]) == (one.id, "server_disconnected")


def test_a_refused_report_is_a_line_with_its_job(worker, submit):
    one = worker()
    submit()
    attempt = one.hold()
    one.complete(attempt, 1)
    with capture_logs() as logs:
        assert not one.complete(attempt, 2)["accepted"]
    [line] = lines(logs, "Report refused")
    values = [line[name] for name in ("server", "job", "attempt", "reason")]
    assert values == [one.id, attempt["job"]["id"], attempt["id"], "conflicting_report"]


@pytest.mark.parametrize("call", ["/jobs", "/executions"])
def test_a_submission_for_which_no_worker_is_there_is_a_line(api, call):
    job = {"action": {"type": "script", "command": "true"}}
    body = job if call == "/jobs" else {"name": "e", "steps": [{"key": "a", **job}]}
    with capture_logs() as logs:
        assert api("client").post(call, {**body, "require_worker": True}).status_code == 503
    [line] = lines(logs, "No workers with fresh heartbeats available")
    assert line["reason"] == "no_fresh_workers"


def test_of_many_silent_servers_the_log_names_the_first_and_counts_the_others(worker, clock, monkeypatch, settings):
    monkeypatch.setattr(detection, "LOGGED_LIMIT", 2)
    settings.LIVENESS = {**getattr(settings, "LIVENESS", {}), "BRAKE_MINIMUM": None}
    for _ in range(5):
        worker(old=True)
    Server.objects.update(heard_observed=-1_000_000)
    with capture_logs() as logs:
        assert detection.disconnect_silent_servers() == 5
    assert len(lines(logs, "heartbeat is stale")) == 2
    [line] = lines(logs, "More servers are DISCONNECTED than are logged")
    assert (line["servers"], line["log_level"]) == (3, "warning")
    assert ServerEvent.objects.filter(to_state="DISCONNECTED").count() == 5
