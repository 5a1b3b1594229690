"""Pages offer exactly the actions that the services allow, and show the refusals of the services."""

import pytest

from controlplane.console.actions.jobs import EXECUTION_ACTIONS, JOB_ACTIONS
from jobs.models import WorkerJob
from jobs.selectors.executions import visible_executions
from jobs.selectors.jobs import actionable_jobs
from tests.support.executions import SCRIPT, step

CHILD = {"action": {"type": "execution", "name": "child", "steps": [step("x")]}}


@pytest.fixture
def jobs(submit, begin, worker, api):
    """Return a job in each situation that differs for a guard, by name."""
    one = worker(max_concurrent=50)

    def hold(*, running=True, **fields):
        job = submit(priority=10, **fields)["id"]
        attempt = one.hold(running=running)
        assert attempt["job"]["id"] == job
        return job, attempt

    def end(event, **more):
        job, attempt = hold(on_worker_lost="FAIL")
        one.report({"attempt": attempt["id"], "event": event, **more})
        return job

    def running_and_cancelled():
        job, _ = hold()
        assert submit.client.post(f"/jobs/{job}/cancel", {}).status_code == 200
        return job

    def step_of(key, *steps):
        return begin(*steps).step(key)["job"]

    def ended_step():
        run = begin(step("a", priority=11), step("b"))
        one.complete(one.hold())
        return run.step("a")["job"]

    def ended_evaluation():
        body = {
            "name": "t",
            "interval_seconds": 3600,
            "action": SCRIPT,
            "execution": {"name": "n", "steps": [step("a")]},
        }
        operator = api("operator")
        trigger = operator.post("/triggers", body).json()["id"]
        operator.post(f"/triggers/{trigger}/evaluate", {})
        job = str(WorkerJob.objects.get(kind="TRIGGER").pk)
        assert operator.post(f"/jobs/{job}/cancel", {}).status_code == 200
        return job

    return {
        "waiting": lambda: submit()["id"],
        "claimed": lambda: hold(running=False)[0],
        "running": lambda: hold()[0],
        "running and being cancelled": running_and_cancelled,
        "completed": lambda: end("COMPLETED"),
        "failed": lambda: end("FAILED", error={"code": "X", "message": ""}),
        "crashed": lambda: end("FAILED", error={"code": "WORKER_CRASHED", "message": ""}),
        "blocked step": lambda: step_of("b", step("a"), step("b", "a")),
        "waiting step": lambda: step_of("a", step("a")),
        "ended step": ended_step,
        "job that is an execution": lambda: submit(**CHILD)["id"],
        "step that is an execution": lambda: step_of("a", {"key": "a", **CHILD}),
        "ended evaluation of a trigger": ended_evaluation,
    }


SITUATIONS = [
    "waiting", "claimed", "running", "running and being cancelled", "completed", "failed", "crashed", "blocked step",
    "waiting step", "ended step", "job that is an execution", "step that is an execution",
    "ended evaluation of a trigger",
]  # fmt: skip


@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("name", ["cancel", "resubmit", "fail"])
def test_a_page_offers_of_a_job_what_the_call_does(jobs, api, situation, name):
    job = jobs[situation]()
    refusal = JOB_ACTIONS[name].refusal_reason(actionable_jobs().get(pk=job))
    answer = api("operator").post(f"/jobs/{job}/{name}", {})
    if (name, situation) == ("cancel", "running and being cancelled"):
        assert refusal and answer.status_code == 200  # a second call changes nothing
        return
    assert (refusal is None) == (answer.status_code in (200, 201)), (refusal, answer.json())
    if refusal is not None and "child" not in answer.json():  # the response of the call also names the execution
        assert answer.json()["detail"] == refusal


@pytest.mark.parametrize("situation", ["running", "being cancelled", "ended"])
@pytest.mark.parametrize("name", ["cancel", "rerun"])
def test_a_page_offers_of_an_execution_what_the_call_does(begin, worker, api, situation, name):
    run, operator = begin(step("a")), api("operator")
    if situation == "being cancelled":
        worker().hold()
    if situation != "running":
        run.cancel()
    row = visible_executions().get(pk=run.id)
    assert row.state == {"running": "RUNNING", "being cancelled": "CANCELLING", "ended": "CANCELLED"}[situation]
    refusal = EXECUTION_ACTIONS[name].refusal_reason(row)
    answer = operator.post(f"/executions/{run.id}/{name}", {})
    if (name, situation) == ("cancel", "being cancelled"):
        assert refusal and answer.status_code == 200  # a second call changes nothing
        return
    assert (refusal is None) == (answer.status_code in (200, 201)), (refusal, answer.json())
    if refusal is not None:
        assert answer.json()["detail"] == refusal


def test_a_resubmission_takes_a_job_out_of_quarantine(jobs, api):
    job = jobs["crashed"]()
    assert WorkerJob.objects.quarantined().filter(pk=job).exists()
    assert api("operator").post(f"/jobs/{job}/resubmit", {}).status_code == 201
    assert not WorkerJob.objects.quarantined().exists()


def test_a_client_that_resubmits_its_job_leaves_it_for_an_operator_to_look_at(jobs, submit):
    job = jobs["crashed"]()
    assert submit.client.post(f"/jobs/{job}/resubmit", {}).status_code == 201
    assert WorkerJob.objects.quarantined().filter(pk=job).exists()
