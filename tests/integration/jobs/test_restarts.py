"""Restarts of ended executions from where they failed: completed steps are kept with their output."""

import pytest
from django.db import IntegrityError, transaction

from jobs.models import Execution, WorkerJob
from jobs.services import sweep
from jobs.services.history import count_history
from tests.integration.liveness.test_history import ended
from tests.support.executions import SCRIPT, Run, step

pytestmark = pytest.mark.django_db


@pytest.fixture
def restart(submitter):
    def restart(run, **headers):
        answer = submitter.post(f"/executions/{run.id}/restart", {}, **headers)
        assert answer.status_code in (200, 201), answer.json()
        return Run(submitter, answer.json()["id"])

    return restart


def child(*steps):
    return {"type": "execution", "name": "inner", "steps": list(steps)}


def kept(run):
    return {one["key"] for one in run.read()["steps"] if one["kept"]}


def test_a_restart_keeps_what_completed_and_begins_where_it_failed(begin, do, restart):
    run = begin(step("load"), step("check", "load"), step("report", "check"), step("aside"))
    do("load", output={"rows": 3})
    do("aside")
    do("check", fails=True)
    again = restart(run)
    assert again.read()["rerun_of"] == run.id
    assert again.states() == {"load": "COMPLETED", "check": "PENDING", "report": "BLOCKED", "aside": "COMPLETED"}
    load, before = again.step("load"), run.step("load")
    assert (load["output"], load["finished_at"], load["attempt_count"]) == ({"rows": 3}, before["finished_at"], 0)
    assert (load["kept"], load["restart_of"]) == (True, before["job"])
    assert (again.step("check")["kept"], again.step("check")["restart_of"]) == (False, run.step("check")["job"])
    do("check")
    do("report")
    assert (again.state, run.state) == ("COMPLETED", "FAILED")
    assert again.events() == []


def test_what_depends_on_a_step_that_runs_again_runs_again_too(begin, do, restart):
    run = begin(step("a", continue_on_failure=True), step("b", "a"), step("c", "b"), step("d"))
    do("a", fails=True)
    do("b")
    do("c")
    do("d", fails=True)
    again = restart(run)
    assert again.states() == {"a": "PENDING", "b": "BLOCKED", "c": "BLOCKED", "d": "PENDING"}
    assert again.step("b")["restart_of"] is None


def test_a_child_that_failed_is_restarted_too_and_one_that_completed_is_kept(begin, do, restart):
    run = begin(
        step("good", action=child(step("x"))),
        step("bad", "good", action=child(step("y"), step("z", "y"))),
    )
    do("x", output=1)
    do("y", output=2)
    do("z", fails=True)
    again = restart(run)
    assert again.states() == {"good": "COMPLETED", "bad": "RUNNING"}
    assert (again.step("good")["output"], again.step("good")["child"]) == ({"x": 1}, None)
    inner = Run(again.client, again.step("bad")["child"])
    assert inner.states() == {"y": "COMPLETED", "z": "PENDING"}
    assert inner.read()["rerun_of"] == run.step("bad")["child"]
    do("z", output=3)
    assert again.state == "COMPLETED"
    assert again.step("bad")["output"] == {"y": 2, "z": 3}


def test_a_child_that_waits_for_a_step_that_runs_again_is_restarted_when_it_begins(begin, do, restart):
    run = begin(step("first"), step("bad", action=child(step("y"), step("z", "y"))), step("late", "bad"))
    do("y")
    do("z", fails=True)
    do("first", fails=True)
    again = restart(run)
    assert kept(Run(again.client, again.step("bad")["child"])) == {"y"}


def test_hooks_run_when_a_restart_fails_again_and_it_is_restarted_in_turn(begin, do, restart):
    run = begin(step("a"), step("b", "a"), on_error=[{"key": "tell", "action": SCRIPT}])
    do("a", output="first")
    do("b", fails=True)
    do("tell")
    second = restart(run)
    assert second.step("tell")["state"] == "BLOCKED"
    do("b", fails=True)
    do("tell")
    third = restart(second)
    assert (kept(third), third.step("a")["output"]) == ({"a"}, "first")
    do("b")
    assert (third.state, third.step("tell")["state"]) == ("COMPLETED", "SKIPPED")


def test_a_cancelled_execution_is_restarted_with_what_it_had_done(begin, do, restart):
    run = begin(step("a"), step("b", "a"))
    do("a")
    run.cancel()
    assert restart(run).states() == {"a": "COMPLETED", "b": "PENDING"}


def test_only_what_failed_or_was_cancelled_is_restarted(begin, do, submitter):
    run = begin(step("a"))
    refused = submitter.post(f"/executions/{run.id}/restart", {})
    assert (refused.status_code, refused.json()["code"]) == (409, "execution_running")
    do("a")
    refused = submitter.post(f"/executions/{run.id}/restart", {})
    assert (refused.status_code, refused.json()["code"]) == (409, "execution_ended")
    assert "again" in refused.json()["detail"]


def test_an_execution_cancelled_after_its_last_step_completed_has_nothing_to_restart(begin, do, submitter):
    run = begin(step("a"))
    attempt = do.take()["a"]["id"]
    do.crew.report({"attempt": attempt, "event": "STARTED"})
    run.cancel()
    do.crew.report({"attempt": attempt, "event": "COMPLETED"})
    assert (run.state, run.states()) == ("CANCELLED", {"a": "COMPLETED"})
    refused = submitter.post(f"/executions/{run.id}/restart", {})
    assert (refused.status_code, refused.json()["code"]) == (409, "execution_ended")
    assert Execution.objects.count() == 1


def test_a_restart_with_a_key_is_one_and_no_rerun_with_the_same_key(begin, do, restart, submitter):
    run = begin(step("a"), step("b"))
    do("a")
    do("b", fails=True)
    key = {"Idempotency-Key": "again"}
    assert restart(run, **key).id == restart(run, **key).id
    refused = submitter.post(f"/executions/{run.id}/rerun", {}, **key)
    assert (refused.status_code, refused.json()["code"]) == (409, "key_conflict")
    assert Execution.objects.count() == 2


def test_the_execution_of_somebody_else_is_not_restarted(begin, do, api):
    run = begin(step("a"))
    do("a", fails=True)
    assert api("client").post(f"/executions/{run.id}/restart", {}).status_code == 404


def test_the_sweep_finds_nothing_to_mend_in_a_restart(begin, do, restart):
    run = begin(step("a"), step("b", "a"), step("c", "b"))
    do("a")
    do("b", fails=True)
    again = restart(run)
    sweep.run_sweep()
    assert again.events() == []
    assert again.states() == {"a": "COMPLETED", "b": "PENDING", "c": "BLOCKED"}


def test_the_database_lets_only_a_kept_step_begin_completed(begin, do, restart):
    run = begin(step("a"), step("b"))
    do("a")
    do("b", fails=True)
    again = restart(run)
    row = WorkerJob.objects.get(pk=again.step("a")["job"])
    row.pk, row.step, row.is_kept = None, "other", False
    with pytest.raises(IntegrityError, match="illegal first state"), transaction.atomic():
        row.save(force_insert=True)


def test_the_charts_count_a_kept_step_once(begin, do, restart):
    run = begin(step("load"), step("check", "load"))
    do("load")
    do("check", fails=True)
    restart(run)
    count_history()
    assert ended() == {"completed": 1, "failed": 1}


def restart_with(submitter, run, **body):
    return submitter.post(f"/executions/{run.id}/restart", body)


def test_a_restart_from_a_step_runs_it_and_its_dependents_again(begin, do, submitter):
    run = begin(step("a"), step("b", "a"), step("c", "b"), step("aside"))
    for key in "abc":
        do(key)
    do("aside")
    assert run.state == "COMPLETED"
    again = Run(submitter, restart_with(submitter, run, from_step="b").json()["id"])
    assert again.states() == {"a": "COMPLETED", "b": "PENDING", "c": "BLOCKED", "aside": "COMPLETED"}
    do("b")
    do("c")
    assert again.state == "COMPLETED"


def test_a_restart_with_other_inputs_gives_them_to_the_steps_that_run_again(begin, do, submitter):
    run = begin(step("a"), step("b", "a"), inputs={"day": 1})
    do("a")
    do("b", fails=True)
    again = Run(submitter, restart_with(submitter, run, inputs={"day": 2}).json()["id"])
    assert again.read()["inputs"] == {"day": 2}
    assert WorkerJob.objects.get(pk=again.step("b")["job"]).payload == {"day": 2}


@pytest.mark.parametrize(
    ("body", "status", "named"),
    [
        ({"from_step": "z"}, 400, "no step 'z'. Its steps are a, b."),
        ({"from_step": 1}, 400, "from_step"),
        ({"inputs": [1]}, 400, "inputs"),
        ({"inputs": {"password": "***"}}, 400, "send the value itself"),
    ],
)
def test_an_impossible_restart_is_refused_with_the_reason(begin, do, submitter, body, status, named):
    run = begin(step("a"), step("b", "a"))
    do("a", fails=True)
    answer = restart_with(submitter, run, **body)
    assert answer.status_code == status and named in str(answer.json())
    assert Execution.objects.count() == 1


def test_inputs_that_are_too_large_with_their_copies_are_refused(begin, do, submitter):
    run = begin(*(step(f"s{number}") for number in range(10)))
    do("s0", fails=True)
    for number in range(1, 10):
        do(f"s{number}")
    answer = restart_with(submitter, run, inputs={"text": "x" * 900_000})
    assert answer.status_code == 400 and "may have at most" in answer.json()["detail"]
