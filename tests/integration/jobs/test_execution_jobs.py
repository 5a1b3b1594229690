"""Jobs whose action is an execution: the control plane begins them, no agent does; they end as their child does."""

import pytest
from django.db import connection
from django.utils import timezone

from jobs.models import Execution, WorkerJob
from jobs.services import sweep
from tests.support.executions import SCRIPT, Run, step

pytestmark = pytest.mark.django_db


def action(*steps, **fields):
    return {"type": "execution", "name": "nightly", "steps": list(steps), **fields}


@pytest.fixture
def job(submitter):
    """Submit a job with an execution as its action. Attributes are read from the API each time."""

    class Job:
        def __init__(self, *steps, payload=None, on_error=(), **fields):
            what = action(*steps, **({"on_error": list(on_error)} if on_error else {}), **fields.pop("action", {}))
            answer = submitter.post("/jobs", {"action": what, **({"payload": payload} if payload else {}), **fields})
            assert answer.status_code in (200, 201), answer.json()
            self.id = answer.json()["id"]

        def read(self):
            return submitter.get(f"/jobs/{self.id}").json()

        @property
        def state(self):
            return self.read()["state"]

        @property
        def child(self):
            return Run(submitter, self.read()["child"])

        def post(self, verb):
            return submitter.post(f"/jobs/{self.id}/{verb}", {})

    return Job


def test_it_runs_while_its_execution_does_and_completes_with_the_outputs_by_key(job, do):
    one = job(step("a"), step("b", "a"))
    assert (one.state, one.child.state) == ("RUNNING", "RUNNING")
    do("a", output={"rows": 7})
    assert one.state == "RUNNING"
    do("b", output=[1])
    assert (one.state, one.child.state) == ("COMPLETED", "COMPLETED")
    assert one.read()["output"] == {"a": {"rows": 7}, "b": [1]}
    assert one.read()["finished_at"]


def test_its_payload_is_the_inputs_of_the_execution(job, do):
    job(step("a"), payload={"day": "monday"})
    assert do.take()["a"]["job"]["payload"] == {"day": "monday"}


def test_it_fails_as_its_execution_does_and_hooks_run(job, do):
    one = job(step("a"), on_error=[{"key": "tell", "action": SCRIPT}])
    do("a", fails=True)
    assert (one.state, one.read()["error"]["code"]) == ("FAILED", "STEPS_FAILED")
    assert one.child.step("tell")["state"] == "PENDING"


def test_cancel_goes_down_and_up(job, do):
    one = job(step("a"), step("b", "a"))
    attempt = do.take()["a"]
    assert one.post("cancel").status_code == 200
    assert one.child.state == "CANCELLING"
    do.crew.report({"attempt": attempt["id"], "event": "CANCELLED"})
    assert (one.child.state, one.state) == ("CANCELLED", "CANCELLED")
    assert one.read()["error"] is None or one.read()["error"]["code"] == "TASK_CANCELLED"


def test_cancelling_its_execution_cancels_it(job):
    one = job(step("a"))
    one.child.cancel()
    assert one.state == "CANCELLED"


def test_the_timeout_of_its_execution_ends_it(job, clock):
    one = job(step("a", unmatched="wait"), action={"timeout_seconds": 10})
    clock.advance(10)
    sweep.run_sweep()
    assert one.state == "CANCELLED"
    assert one.child.read()["error"]["code"] == "EXECUTION_TIMEOUT"


def test_no_agent_may_claim_it_and_it_is_never_unmatched_nor_placed(job, worker, clock, submitter):
    one = job(step("a", unmatched="wait"), tags=["gpu"])
    assert all(attempt["job"]["step"] == "a" for attempt in worker(tags=["gpu", "script"]).claim())
    clock.advance(1000)
    sweep.run_sweep()
    assert (one.state, one.read()["flags"], one.read()["attempts"]) == ("RUNNING", [], [])
    assert submitter.get(f"/jobs/{one.id}/placement").json()["code"] == "job_not_waiting"


def test_the_same_key_again_begins_no_second_execution(job):
    assert job(step("a"), key="k").id == job(step("a"), key="k").id
    assert Execution.objects.count() == 1


def test_children_of_its_execution_run_too(job, do):
    one = job(step("c", action=action(step("x"))))
    do("x", output=1)
    assert one.read()["output"] == {"c": {"x": 1}}


def test_it_cannot_be_failed_or_moved_for_its_execution_is_what_runs(job):
    one = job(step("a"))
    for verb in ("fail", "resubmit"):
        answer = one.post(verb)
        assert (answer.status_code, answer.json()["code"]) == (409, "step_has_child")


def test_one_that_failed_is_submitted_again_as_another_execution(job, do, submitter):
    one = job(step("a"))
    do("a", fails=True)
    again = one.post("resubmit")
    assert again.status_code == 201
    assert again.json()["state"] == "RUNNING"
    assert again.json()["child"] != one.read()["child"]
    do("a")
    assert submitter.get(f"/jobs/{again.json()['id']}").json()["state"] == "COMPLETED"


def test_many_in_one_call_with_others_between(submitter, do):
    bodies = [{"action": action(step("a"))}, {"action": SCRIPT}, {"action": action(step("b"))}]
    items = submitter.post("/jobs", bodies).json()["items"]
    assert [item["state"] for item in items] == ["RUNNING", "PENDING", "RUNNING"]
    do("a", "b")
    assert [submitter.get(f"/jobs/{item['id']}").json()["state"] for item in items][::2] == ["COMPLETED"] * 2


def test_a_worker_may_be_required_for_its_steps(submitter, worker):
    body = {"action": action(step("a"), step("b", "a", tags=["gpu"])), "require_worker": True}
    worker()
    answer = submitter.post("/jobs", body)
    assert (answer.status_code, answer.json()["code"]) == (503, "no_fresh_workers")
    assert not WorkerJob.objects.exists()
    worker(tags=["gpu", "script"])
    assert submitter.post("/jobs", body).json()["state"] == "RUNNING"


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"timeout_seconds": 5}, "timeout_seconds"),
        ({"max_retries": 1}, "max_retries"),
        ({"available_at": "2100-01-01T00:00:00Z"}, "available_at"),
        ({"good_until": "2100-01-01T00:00:00Z"}, "good_until"),
        ({"payload": [1]}, "payload"),
        ({"action": {"type": "execution", "name": "n", "steps": []}}, "action"),
        ({"action": action(step("a", "b"), step("b", "a"))}, "action"),
    ],
)
def test_what_makes_no_sense_of_an_execution_is_a_400(submitter, fields, where):
    answer = submitter.post("/jobs", {"action": action(step("a")), **fields})
    assert answer.status_code == 400
    assert where in answer.json()["errors"]


def test_one_that_a_crash_left_waiting_begins_with_the_next_sweep(job):
    one = job(step("a"))
    Execution.objects.all().delete()
    WorkerJob.objects.filter(pk=one.id).update(state="PENDING")
    assert sweep.run_sweep()["repaired"] == {"REPAIRED": 1}
    assert (one.state, one.child.state) == ("RUNNING", "RUNNING")


def test_a_job_that_missed_the_end_of_its_execution_ends_with_the_next_sweep(job):
    one = job(step("a"))
    with connection.cursor() as cursor:
        cursor.execute(
            "update jobs_workerjob set state = 'CANCELLED', finished_at = now(), passed_on = true where step = 'a'"
        )
        cursor.execute("update jobs_execution set state = 'CANCELLING'")
        cursor.execute(
            "update jobs_execution set state = 'CANCELLED', finished_at = now(), passed_on = true, open_steps = 0"
        )
    assert one.state == "RUNNING"
    assert sweep.run_sweep()["repaired"] == {"REPAIRED": 1}
    assert one.state == "CANCELLED"
    assert sweep.run_sweep()["repaired"] == {}


def test_its_page_and_that_of_its_execution_lead_to_each_other(job, admin_client):
    one = job(step("a"))
    child = one.child.id
    assert f"/executions/{child}/" in admin_client.get(f"/admin/instance/jobs/{one.id}/").content.decode()
    assert f"/jobs/{one.id}/" in admin_client.get(f"/admin/instance/executions/{child}/").content.decode()
    assert "started by a job" in admin_client.get("/admin/instance/executions/").content.decode()
    assert one.child.read()["parent"] == {"job": one.id, "execution": None, "step": None}


def test_after_its_retention_it_and_its_execution_go(job, settings, clock):
    from django.core.management import call_command

    settings.JOBS = {"JOB_RETENTION": "1h", "EXECUTION_RETENTION": "1h"}
    one = job(step("a"))
    one.child.cancel()
    clock.step(7200)
    assert one.read()["finished_at"] < timezone.now().isoformat()
    call_command("prune")
    assert not Execution.objects.exists()
    assert not WorkerJob.objects.exists()
