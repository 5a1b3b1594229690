"""Jobs and executions that have not ended at their deadline are flagged, and cancelled if they ask for it."""

import pytest

from jobs.models import Execution, WorkerJob
from jobs.services import sweep
from jobs.services.alert_rules import find_missed_deadlines
from jobs.services.liveness_check import check_liveness
from tests.support.executions import SCRIPT, step

pytestmark = pytest.mark.django_db


@pytest.fixture
def read(submit):
    return lambda job: submit.client.get(f"/jobs/{job['id']}").json()


@pytest.fixture
def late(clock):
    """Let a deadline of ten seconds pass, with a liveness check after it, and sweep."""

    def late():
        clock.advance(11)
        check_liveness()
        clock.advance(2)
        check_liveness()
        return sweep.run_sweep()["late"]

    return late


def test_a_job_shows_its_deadline_from_its_creation(submit, read, clock):
    job = read(submit(deadline_seconds=10))
    assert (job["deadline_seconds"], job["on_deadline"], job["flags"]) == (10, "flag", [])
    stored = WorkerJob.objects.get(pk=job["id"])
    assert (stored.deadline_at - stored.created_at).total_seconds() == pytest.approx(10, abs=0.01)


def test_a_job_without_a_deadline_shows_none(submit, read):
    job = read(submit())
    assert (job["deadline_seconds"], job["on_deadline"], job["deadline_at"]) == (None, None, None)


def test_a_job_past_its_deadline_is_flagged_and_continues(submit, read, late, worker):
    job, one = submit(deadline_seconds=10), worker()
    one.hold()
    assert late() == {}
    assert (read(job)["state"], read(job)["flags"]) == ("RUNNING", ["deadline_missed"])
    listed = submit.client.get("/jobs?flag=deadline_missed").json()["items"]
    assert [item["id"] for item in listed] == [job["id"]]


def test_a_job_just_before_its_deadline_has_no_flag(submit, read, clock):
    job = submit(deadline_seconds=10)
    clock.advance(9)
    assert read(job)["flags"] == []


def test_a_job_that_ended_has_no_flag(submit, read, clock, worker):
    job, one = submit(deadline_seconds=10), worker()
    attempt = one.hold()
    one.report({"attempt": attempt["id"], "event": "COMPLETED"})
    clock.advance(20)
    assert read(job)["flags"] == []


def test_a_job_may_have_two_flags(submit, read, clock, worker):
    worker()
    job = submit(deadline_seconds=10, tags=["gpu"], unmatched="wait")
    clock.advance(20)
    assert sorted(read(job)["flags"]) == ["deadline_missed", "waits_for_tags"]


def test_a_parked_job_has_only_the_flag_of_its_deadline(submit, read, clock, api, worker):
    api("operator").call("PUT", "/limits/one", {"running": 1})
    first = submit(limits=["one"])
    job = submit(limits=["one"], deadline_seconds=10, unmatched="wait", tags=["gpu"])
    WorkerJob.objects.filter(pk=job["id"]).update(parked_by={"limit": "one"})
    clock.advance(20)
    assert (read(job)["parked_by"], read(job)["flags"]) == ({"limit": "one"}, ["deadline_missed"])
    assert read(first)["flags"] == []


def test_a_waiting_job_is_cancelled_at_its_deadline_if_it_asks_for_it(submit, read, late):
    job = submit(deadline_seconds=10, on_deadline="cancel")
    assert late() == {"CANCELLED": 1}
    assert (read(job)["state"], read(job)["error"]["code"]) == ("CANCELLED", "DEADLINE_MISSED")
    assert "has not ended 10 s after its submission" in read(job)["error"]["message"]


def test_the_worker_of_a_running_job_is_asked_to_stop_it(submit, read, late, worker):
    job, one = submit(deadline_seconds=10, on_deadline="cancel"), worker()
    attempt = one.hold()
    assert late() == {"RUNNING": 1}
    assert attempt["id"] in one.beat(running=[{"attempt": attempt["id"]}]).json()["cancel"]
    assert sweep.run_sweep()["late"] == {}
    one.report({"attempt": attempt["id"], "event": "CANCELLED"})
    assert (read(job)["state"], read(job)["error"]["code"]) == ("CANCELLED", "DEADLINE_MISSED")


def test_a_job_that_completes_first_is_completed(submit, read, late, worker):
    job, one = submit(deadline_seconds=10, on_deadline="cancel"), worker()
    attempt = one.hold()
    late()
    one.report({"attempt": attempt["id"], "event": "COMPLETED", "output": 1})
    assert (read(job)["state"], read(job)["error"], read(job)["output"]) == ("COMPLETED", None, 1)


def test_a_cancellation_by_hand_has_no_error(submit, read, worker):
    job, one = submit(), worker()
    attempt = one.hold()
    submit.client.post(f"/jobs/{job['id']}/cancel", {})
    one.report({"attempt": attempt["id"], "event": "CANCELLED"})
    assert (read(job)["state"], read(job)["error"]) == ("CANCELLED", None)


def test_after_an_outage_a_deadline_counts_only_after_a_whole_check(submit, read, clock):
    check_liveness()
    job = submit(deadline_seconds=10, on_deadline="cancel", unmatched="wait")
    clock.advance(3600)
    assert sweep.run_sweep()["late"] == {}
    assert "deadline_missed" in read(job)["flags"]
    check_liveness()
    clock.advance(1)
    assert sweep.run_sweep()["late"] == {"CANCELLED": 1}


def test_a_check_that_began_before_the_deadline_does_not_count(submit, clock):
    submit(deadline_seconds=10, on_deadline="cancel")
    clock.advance(9)
    check_liveness()
    clock.advance(2)
    assert sweep.run_sweep()["late"] == {}


def test_an_execution_is_flagged_at_its_deadline(begin, clock, late):
    run = begin(step("a"), deadline_seconds=10)
    assert (run.read()["flags"], run.read()["on_deadline"]) == ([], "flag")
    assert late() == {}
    assert (run.state, run.read()["flags"]) == ("RUNNING", ["deadline_missed"])
    assert run.client.get("/executions").json()["items"][0]["flags"] == ["deadline_missed"]


def test_an_execution_is_cancelled_at_its_deadline_and_its_hooks_run(begin, late):
    run = begin(
        step("a"),
        step("b", "a"),
        deadline_seconds=10,
        on_deadline="cancel",
        on_error=[{"key": "tell", "action": SCRIPT}],
    )
    assert late() == {"CANCELLING": 1}
    assert (run.state, run.read()["error"]["code"]) == ("CANCELLED", "DEADLINE_MISSED")
    assert run.step("tell")["state"] == "PENDING"
    assert run.read()["flags"] == []
    assert [event["code"] for event in run.events()] == ["DEADLINE_MISSED"]


def test_a_step_is_cancelled_at_its_own_deadline(begin, late):
    run = begin(step("a"), step("b", "a", deadline_seconds=10, on_deadline="cancel"), step("c", "b"))
    assert late() == {"CANCELLED": 1}
    assert run.states() == {"a": "PENDING", "b": "CANCELLED", "c": "SKIPPED"}
    assert "DEADLINE_MISSED" in [event["code"] for event in run.events()]


def test_a_rerun_has_its_own_deadline(begin, late, clock):
    run = begin(step("a"), deadline_seconds=10, on_deadline="cancel")
    late()
    again = run.client.post(f"/executions/{run.id}/rerun", {}).json()
    assert (again["deadline_seconds"], again["on_deadline"], again["flags"]) == (10, "cancel", [])


def test_a_resubmitted_job_has_its_own_deadline(submit, late, read):
    job = submit(deadline_seconds=10, on_deadline="cancel")
    late()
    again = read(submit.client.post(f"/jobs/{job['id']}/resubmit", {}).json())
    assert (again["state"], again["deadline_seconds"], again["flags"]) == ("PENDING", 10, [])


def test_the_alert_names_jobs_and_executions_past_their_deadline(submit, begin, clock):
    job, run = submit(deadline_seconds=10, name="report"), begin(step("a"), deadline_seconds=10)
    submit(deadline_seconds=100)
    assert list(find_missed_deadlines()) == []
    clock.advance(11)
    found = {condition["subject"]: condition for condition in find_missed_deadlines()}
    assert found["job"]["summary"] == "1 job past the deadline: report"
    assert (found["job"]["items"], found["execution"]["items"]) == ([job["id"]], [run.id])
    assert found["execution"]["summary"] == "1 execution past the deadline: nightly"


def test_the_alert_also_names_what_was_cancelled_at_its_deadline(submit, begin, late):
    submit(deadline_seconds=10, on_deadline="cancel")
    begin(step("a"), deadline_seconds=10, on_deadline="cancel")
    late()
    assert set(WorkerJob.objects.values_list("state", flat=True)) == {"CANCELLED"}
    assert Execution.objects.get().state == "CANCELLED"
    assert {condition["subject"] for condition in find_missed_deadlines()} == {"job", "execution"}


def test_the_alert_can_be_switched_off(submit, clock, settings):
    submit(deadline_seconds=10)
    clock.advance(11)
    settings.ALERTS = {"DEADLINE_MISSED": False}
    assert list(find_missed_deadlines()) == []


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"on_deadline": "cancel"}, "on_deadline"),
        ({"deadline_seconds": 0}, "deadline_seconds"),
        ({"deadline_seconds": "soon"}, "deadline_seconds"),
        ({"deadline_seconds": 5, "on_deadline": "later"}, "on_deadline"),
    ],
)
def test_a_wrong_deadline_is_refused_with_its_field(submitter, fields, named):
    job = submitter.post("/jobs", {"action": SCRIPT, **fields})
    execution = submitter.post("/executions", {"name": "x", "steps": [step("a")], **fields})
    for answer in (job, execution):
        assert (answer.status_code, list(answer.json()["errors"])) == (400, [named])


def test_an_execution_as_a_job_has_its_deadline_in_its_action(submitter):
    action = {"type": "execution", "name": "inner", "steps": [step("a")]}
    answer = submitter.post("/jobs", {"action": action, "deadline_seconds": 5})
    assert "give it to the action" in str(answer.json()["errors"]["deadline_seconds"])
    job = submitter.post("/jobs", {"action": {**action, "deadline_seconds": 5}}).json()
    assert submitter.get(f"/executions/{job['child']}").json()["deadline_seconds"] == 5
