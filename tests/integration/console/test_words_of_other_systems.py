"""Words and lines of other systems, in the places where their users look for them."""

import pytest
from django.db import connection
from structlog.testing import capture_logs

from jobs.services import sweep
from jobs.services.liveness_check import check_liveness
from liveness.models import Clock as ClockRow
from liveness.models import Server
from liveness.services import detection
from tests.support.clock import heartbeats_get_in
from tests.support.executions import step

pytestmark = pytest.mark.django_db
CHILD = {"type": "execution", "name": "inner", "steps": [step("x"), step("y")]}


def sql(statement, *params):
    with connection.cursor() as cursor:
        cursor.execute(statement, params)


# Horsies: a result that is missing


def test_a_completed_child_whose_results_are_missing_is_result_not_available(begin, do):
    run = begin(step("child", action=CHILD), step("z", "child"))
    child = run.step("child")["child"]
    do("x", output=1)
    sql("update jobs_execution set state = 'COMPLETED', open_steps = 0, finished_at = now() where id = %s", child)
    sweep.run_sweep()
    parent = run.step("child")
    assert (parent["state"], parent["output"]) == ("COMPLETED", None)
    assert parent["error"] == {
        "code": "RESULT_NOT_AVAILABLE",
        "message": "Child execution inner completed, but the results of 1 of its steps are missing",
        "child": child,
    }


def test_a_child_whose_results_are_all_there_hands_them_on(begin, do):
    run = begin(step("child", action=CHILD))
    do("x", output=1)
    do("y", output=None)
    assert (run.step("child")["output"], run.step("child")["error"]) == ({"x": 1, "y": None}, None)


def test_a_step_whose_child_is_gone_is_result_not_available(begin):
    run = begin(step("child", action=CHILD), step("z", "child"))
    child = run.step("child")["child"]
    sql(
        "delete from jobs_stepdependency where step_id in (select id from jobs_workerjob where execution_id = %s)",
        child,
    )
    sql("delete from jobs_workerjob where execution_id = %s", child)
    sql("delete from jobs_execution where id = %s", child)
    sweep.run_sweep()
    assert run.step("child")["error"]["code"] == "RESULT_NOT_AVAILABLE"
    assert run.states() == {"child": "FAILED", "z": "SKIPPED"}


# Strøm: the log of the server


def test_a_job_alone_has_a_log_of_what_the_control_plane_did(submit, worker, clock, api):
    job = submit(max_retries=1)
    one = worker(name="one", config={"worker_task_restart_strategy": "IMMEDIATELY"})
    one.hold()
    for _ in range(2):
        clock.advance(1000)
        check_liveness()
    two = worker(name="two")
    two.report(
        {"attempt": two.hold()["id"], "event": "FAILED", "error": {"code": "BAD", "message": "no", "traceback": ""}}
    )
    path = f"/jobs/{job['id']}/steps/_server/logs"
    answer = submit.client.get(path).json()
    assert [(item["code"], item["server"]) for item in answer["items"]] == [
        ("JOB_RESUBMITTED", one.id), ("RETRY", two.id),
    ]  # fmt: skip
    assert answer["items"][0]["line"] == "attempt 1: RESUBMITTED: server one is DISCONNECTED"
    assert answer["items"][0]["step"] is None
    page = submit.client.get(f"{path}?limit=1").json()
    assert (len(page["items"]), page["next"]) == (1, "1")
    assert submit.client.get(f"{path}?limit=1&cursor=1").json()["items"] == answer["items"][1:]
    assert submit.client.get(f"{path}?cursor=-1").status_code == 400
    assert api("client").get(path).status_code == 404, "it is another client's"


def test_the_log_of_a_job_without_a_worker_shows_that(submit, worker, clock):
    job = submit(tags=["nobody"])
    clock.advance(31)
    sweep.run_sweep()
    [item] = submit.client.get(f"/jobs/{job['id']}/steps/_server/logs").json()["items"]
    assert (item["code"], item["line"]) == (
        "NO_MATCHING_WORKER", "No active worker with required tags to run this step",
    )  # fmt: skip


# Attune: the line of a stale heartbeat


def stale_lines(logs):
    return [line["event"] for line in logs if "heartbeat is stale: last seen" in line["event"]]


def test_a_worker_that_goes_stale_is_a_line_once_before_it_is_disconnected(worker, clock):
    worker(name="one", old=True)
    two = worker(name="two", old=True)
    ClockRow.objects.update(witnessed=True)
    heartbeats_get_in()
    lines = []
    for _ in range(4):
        clock.step(10)
        two.beat()
        heartbeats_get_in()
        with capture_logs() as logs:
            check_liveness()
        lines.append(stale_lines(logs))
    assert lines == [["Worker one heartbeat is stale: last seen 10 seconds ago"], [], [], []]


def test_a_claim_that_is_refused_as_stale_is_a_line(worker, clock):
    one = worker(name="one")
    clock.advance(30)
    with capture_logs() as logs:
        assert one.post(f"/servers/{one.id}/claims", {"limit": 1}).json()["code"] == "heartbeat_stale"
    assert stale_lines(logs) == ["Worker one heartbeat is stale: last seen 30 seconds ago"]


def test_a_submission_that_is_refused_for_stale_workers_names_them(worker, clock, api):
    worker(name="one")
    clock.advance(30)
    body = {"action": {"type": "script", "command": "true"}, "require_worker": True}
    with capture_logs() as logs:
        assert api("client").post("/jobs", body).status_code == 503
    assert stale_lines(logs) == ["Worker one heartbeat is stale: last seen 30 seconds ago"]


def test_of_many_that_go_stale_at_once_the_first_are_named(worker, monkeypatch):
    monkeypatch.setattr(detection, "LOGGED_LIMIT", 2)
    for _ in range(4):
        worker()
    heard = Server.objects.values_list("heard_observed", flat=True)
    with capture_logs() as logs:
        detection.log_newly_stale(min(heard), max(heard) + 1000)
    assert len(stale_lines(logs)) == 2
    assert [line["event"] for line in logs][2:] == ["More heartbeats are stale than are logged"]
