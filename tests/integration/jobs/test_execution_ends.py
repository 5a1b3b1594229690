"""Executions that do not end by their steps: cancellation, timeout, lost workers, repair."""

import pytest
from django.db import connection

from jobs.models import WorkerJob
from jobs.services import liveness_check, sweep
from tests.support.executions import SCRIPT, step

pytestmark = pytest.mark.django_db


def sql(statement, *params):
    with connection.cursor() as cursor:
        cursor.execute(statement, params)


# Cancelling


def test_cancelling_ends_what_waits_and_asks_the_workers_of_what_runs(begin, do):
    run = begin(step("a", priority=1), step("b", "a"), step("c"), on_error=[{"key": "tell", "action": SCRIPT}])
    attempt = do.crew.hold()
    assert run.cancel().json()["state"] == "CANCELLING"
    assert run.states() == {"a": "RUNNING", "b": "CANCELLED", "c": "CANCELLED"}
    assert do.crew.beat(running=[{"attempt": attempt["id"], "pid": 1}]).json()["cancel"] == [attempt["id"]]
    do.crew.report({"attempt": attempt["id"], "event": "CANCELLED"})
    assert run.state == "CANCELLED"
    assert run.step("tell")["state"] == "CANCELLED"


def test_cancelling_again_changes_nothing_and_an_ended_one_is_a_conflict(begin, do):
    run = begin(step("a"))
    do.crew.hold()
    run.cancel()
    before = run.read()
    assert run.cancel().status_code == 200
    assert run.read() == before
    other = begin(step("b"))
    do("b")
    answer = other.cancel()
    assert answer.status_code == 409
    assert answer.json()["code"] == "execution_ended"
    assert answer.json()["state"] == "COMPLETED"


def test_a_completion_that_comes_while_cancelling_is_kept_and_starts_nothing(begin, do):
    run = begin(step("a"), step("b", "a"))
    attempt = do.crew.hold()
    run.cancel()
    assert do.crew.complete(attempt, {"late": True})["accepted"]
    assert run.states() == {"a": "COMPLETED", "b": "CANCELLED"}
    assert run.step("a")["output"] == {"late": True}
    assert run.state == "CANCELLED"


def test_a_job_killed_with_its_execution_is_not_resubmitted_ten_minutes_later(begin, do, clock):
    run = begin(step("a", max_retries=5))
    do.crew.hold()
    run.cancel()
    lose_worker(clock)
    assert run.states() == {"a": "CANCELLED"}
    assert run.state == "CANCELLED"
    before = run.read()
    clock.advance(600)
    sweep.run_sweep()
    liveness_check.check_liveness()
    assert run.read() == before
    assert WorkerJob.objects.count() == 1


def test_one_blocked_step_may_be_cancelled_alone(begin, do, submitter):
    run = begin(step("a"), step("b", "a"), step("c", "b"))
    assert submitter.post(f"/jobs/{run.step('b')['job']}/cancel", {}).json()["state"] == "CANCELLED"
    assert run.states() == {"a": "PENDING", "b": "CANCELLED", "c": "SKIPPED"}
    do("a")
    assert run.state == "FAILED"


def test_a_step_that_is_an_execution_is_only_cancelled_with_its_child(begin, submitter):
    run = begin(step("child", action={"type": "execution", "name": "inner", "steps": [step("x")]}))
    job = run.step("child")["job"]
    for verb in ("fail", "resubmit"):
        answer = submitter.post(f"/jobs/{job}/{verb}", {})
        assert (answer.status_code, answer.json()["code"]) == (409, "step_has_child")
    assert submitter.post(f"/jobs/{job}/cancel", {}).json()["state"] == "CANCELLED"
    assert run.state == "FAILED"


def test_a_blocked_step_is_not_failed_by_hand(begin, submitter):
    run = begin(step("a"), step("b", "a"))
    answer = submitter.post(f"/jobs/{run.step('b')['job']}/fail", {})
    assert (answer.status_code, answer.json()["code"], answer.json()["state"]) == (409, "job_blocked", "BLOCKED")
    assert run.states()["b"] == "BLOCKED"


def test_a_step_failed_by_hand_moves_its_execution_on(begin, submitter):
    run = begin(step("a"), step("b", "a"))
    submitter.post(f"/jobs/{run.step('a')['job']}/fail", {"reason": "no"})
    assert run.states() == {"a": "FAILED", "b": "SKIPPED"}
    assert run.state == "FAILED"


def test_a_step_that_has_ended_is_not_resubmitted_but_its_execution_runs_again(begin, do, submitter):
    run = begin(step("a"), step("b", "a"), inputs={"n": 1})
    do("a", fails=True)
    answer = submitter.post(f"/jobs/{run.step('a')['job']}/resubmit", {})
    assert (answer.status_code, answer.json()["code"]) == (409, "execution_ended")
    again = submitter.post(f"/executions/{run.id}/rerun", {})
    assert again.status_code == 201
    assert again.json()["rerun_of"] == run.id
    assert again.json()["inputs"] == {"n": 1}
    assert [step["state"] for step in again.json()["steps"]] == ["PENDING", "BLOCKED"]
    refused = submitter.post(f"/executions/{again.json()['id']}/rerun", {})
    assert (refused.status_code, refused.json()["code"]) == (409, "execution_running")


# Timeouts


def test_an_execution_at_its_timeout_is_cancelled_with_its_children(begin, do, clock, submitter):
    child = {"type": "execution", "name": "inner", "steps": [step("x"), step("y", "x")]}
    run = begin(step("a", tags=["rare"], unmatched="wait"), step("child", action=child), timeout_seconds=100)
    attempt = do.crew.hold()
    assert attempt["job"]["step"] == "x"
    clock.advance(100)
    do.crew.beat(running=[{"attempt": attempt["id"], "pid": 1}])
    sweep.run_sweep()
    assert run.read()["error"]["code"] == "EXECUTION_TIMEOUT"
    assert run.state == "CANCELLING"
    assert run.states()["a"] == "CANCELLED"
    do.crew.report({"attempt": attempt["id"], "event": "CANCELLED"})
    assert run.state == "CANCELLED"
    inner = submitter.get(f"/executions/{run.step('child')['child']}").json()
    assert inner["state"] == "CANCELLED"
    assert {step["state"] for step in inner["steps"]} == {"CANCELLED"}
    assert [event["code"] for event in run.events()] == ["EXECUTION_TIMEOUT"]


TELL = {"key": "tell", "action": SCRIPT, "payload": {"to": "ops"}}


def test_the_timeout_of_an_execution_runs_its_hooks_with_the_error(begin, do, clock):
    run = begin(step("a"), step("b", unmatched="wait", tags=["rare"]), on_error=[TELL], timeout_seconds=100)
    attempt = do.take()["a"]
    do.crew.start(attempt)
    clock.advance(100)
    do.crew.beat()
    sweep.run_sweep()
    assert (run.state, run.step("tell")["state"]) == ("CANCELLING", "BLOCKED")
    do.crew.report({"attempt": attempt["id"], "event": "CANCELLED"})
    assert (run.state, run.step("tell")["state"]) == ("CANCELLED", "PENDING")
    payload = do.take()["tell"]["job"]["payload"]
    assert payload["to"] == "ops"
    assert payload["error"] == {"code": "EXECUTION_TIMEOUT", "message": "exceeded its timeout of 100 s"}
    assert {(row["step"], row["state"]) for row in payload["failed"]} == {("a", "CANCELLED"), ("b", "CANCELLED")}
    assert payload["execution"]["id"] == run.id
    do("tell")
    assert (run.state, run.step("tell")["state"]) == ("CANCELLED", "COMPLETED")


def test_the_timeout_of_an_execution_of_which_nothing_runs_runs_its_hooks_at_once(begin, do, clock):
    run = begin(step("a", unmatched="wait", tags=["rare"]), on_error=[TELL], timeout_seconds=100)
    clock.advance(100)
    sweep.run_sweep()
    assert (run.state, run.step("tell")["state"]) == ("CANCELLED", "PENDING")
    do("tell")


def test_a_hook_survives_a_repair_of_the_execution_that_timed_out(begin, do, clock):
    run = begin(step("a"), on_error=[TELL], timeout_seconds=100)
    attempt = do.take()["a"]
    do.crew.start(attempt)
    clock.advance(100)
    sweep.run_sweep()
    sql("update jobs_workerjob set state = 'CANCELLED', attempt_id = null, finished_at = now() where step = 'a'")
    sweep.run_sweep()
    assert (run.state, run.step("tell")["state"]) == ("CANCELLED", "PENDING")


def test_no_hook_runs_when_a_person_or_a_parent_cancels_an_execution(begin, clock):
    run = begin(step("a", unmatched="wait"), on_error=[TELL])
    run.cancel()
    assert (run.state, run.step("tell")["state"]) == ("CANCELLED", "CANCELLED")
    inner = {"type": "execution", "name": "inner", "steps": [step("x", unmatched="wait")], "on_error": [TELL]}
    run = begin(step("child", action=inner), timeout_seconds=100)
    clock.advance(100)
    sweep.run_sweep()
    child = type(run)(run.client, run.step("child")["child"])
    assert (run.state, child.state, child.step("tell")["state"]) == ("CANCELLED", "CANCELLED", "CANCELLED")


def test_an_execution_just_before_its_timeout_runs_on(begin, clock):
    run = begin(step("a", unmatched="wait"), timeout_seconds=100)
    clock.advance(99.9)
    sweep.run_sweep()
    assert run.state == "RUNNING"


# Lost workers


def lose_worker(clock):
    for _ in range(2):
        clock.advance(1000)
        liveness_check.check_liveness()


def test_a_step_of_a_lost_worker_is_resubmitted_with_an_event(begin, do, clock, worker):
    run = begin(step("a"), step("b", "a"))
    do.crew.hold()
    lose_worker(clock)
    assert run.states() == {"a": "PENDING", "b": "BLOCKED"}
    assert [event["code"] for event in run.events()] == ["JOB_RESUBMITTED"]
    assert run.events()[0]["server"] == do.crew.id


def test_a_step_that_fails_with_its_worker_cascades_in_the_same_pass(begin, do, clock):
    run = begin(step("a", on_worker_lost="FAIL"), step("b", "a"), on_error=[{"key": "tell", "action": SCRIPT}])
    do.crew.hold()
    lose_worker(clock)
    assert run.states() == {"a": "FAILED", "b": "SKIPPED"}
    assert run.state == "FAILED"
    assert run.step("tell")["state"] == "PENDING"
    assert {event["code"] for event in run.events()} == {"WORKER_CRASHED", "STEP_SKIPPED"}


def test_a_step_that_nobody_can_run_fails_and_cascades(begin, clock):
    run = begin(step("a", tags=["nobody"]), step("b", "a"))
    clock.advance(31)
    sweep.run_sweep()
    assert run.states() == {"a": "FAILED", "b": "SKIPPED"}
    assert run.step("a")["error"]["message"] == "No active worker with required tags to run this step"
    assert {event["code"] for event in run.events()} == {"NO_MATCHING_WORKER", "STEP_SKIPPED"}


def test_a_retry_is_an_event(begin, do):
    run = begin(step("a", max_retries=1), step("b", "a"))
    do("a", fails=True)
    assert run.states() == {"a": "PENDING", "b": "BLOCKED"}
    assert [event["code"] for event in run.events()] == ["RETRY"]


def test_a_child_is_never_unmatched(begin, clock, worker):
    run = begin(step("child", action={"type": "execution", "name": "inner", "steps": [step("x", unmatched="wait")]}))
    clock.advance(10_000)
    sweep.run_sweep()
    assert run.states() == {"child": "RUNNING"}


# Repair


def test_a_step_that_ended_without_moving_its_execution_on_is_passed_on_once(begin, do):
    run = begin(step("a"), step("b", "a"))
    sql(
        "update jobs_workerjob set state = 'CANCELLED', finished_at = now() where id = %s and state = 'PENDING'",
        run.step("a")["job"],
    )
    sweep.run_sweep()
    assert run.states() == {"a": "CANCELLED", "b": "SKIPPED"}
    assert run.state == "FAILED"
    codes = [event["code"] for event in run.events()]
    assert codes.count("EXECUTION_REPAIRED") == 1
    sweep.run_sweep()
    assert [event["code"] for event in run.events()] == codes


def test_a_step_that_is_blocked_though_all_before_it_has_ended_is_freed(begin, do):
    run = begin(step("a"), step("b", "a"), step("c", "b"))
    sql("update jobs_workerjob set waits_for = 2 where id = %s", run.step("b")["job"])
    do("a")
    assert run.states()["b"] == "BLOCKED"
    sweep.run_sweep()
    assert run.states() == {"a": "COMPLETED", "b": "PENDING", "c": "BLOCKED"}
    do("b")
    do("c")
    assert run.state == "COMPLETED"


def test_an_execution_that_is_open_though_all_of_its_steps_have_ended_is_closed(begin, do):
    run = begin(step("a"))
    sql("update jobs_execution set open_steps = 5 where id = %s", run.id)
    do("a")
    assert run.state == "RUNNING"
    sweep.run_sweep()
    assert run.state == "COMPLETED"


def test_a_parent_step_whose_child_has_ended_is_ended(begin, do):
    run = begin(step("child", action={"type": "execution", "name": "inner", "steps": [step("x")]}), step("z", "child"))
    child = run.step("child")["child"]
    sql("update jobs_execution set state = 'FAILED', open_steps = 0, finished_at = now() where id = %s", child)
    sweep.run_sweep()
    assert run.step("child")["error"] == {
        "code": "WORKER_CRASHED", "message": "Child execution inner failed", "child": child,
    }  # fmt: skip
    assert run.states() == {"child": "FAILED", "z": "SKIPPED"}
    assert run.state == "FAILED"


def test_a_child_that_never_began_begins(begin, do):
    run = begin(step("a"), step("child", "a", action={"type": "execution", "name": "inner", "steps": [step("x")]}))
    do.take()
    sql("update jobs_workerjob set state = 'PENDING' where id = %s", run.step("child")["job"])
    sweep.run_sweep()
    assert run.step("child")["child"] is not None
    assert run.states()["child"] == "RUNNING"


def test_a_cancellation_that_was_cut_short_is_finished(begin, do):
    run = begin(step("a"), step("b"))
    attempt = do.crew.hold()
    sql("update jobs_execution set state = 'CANCELLING' where id = %s", run.id)
    sweep.run_sweep()
    assert do.crew.beat(running=[{"attempt": attempt["id"], "pid": 1}]).json()["cancel"] == [attempt["id"]]
    do.crew.report({"attempt": attempt["id"], "event": "CANCELLED"})
    assert set(run.states().values()) == {"CANCELLED"}
    assert run.state == "CANCELLED"


@pytest.mark.parametrize("ended", ["COMPLETED", "FAILED", "CANCELLED"])
def test_an_execution_that_has_ended_is_not_touched(begin, do, ended):
    run = begin(step("a"), step("b", "a"))
    if ended == "CANCELLED":
        run.cancel()
    else:
        do("a", fails=ended == "FAILED")
        if ended == "COMPLETED":
            do("b")
    before = run.read()
    assert before["state"] == ended
    sweep.run_sweep()
    assert run.read() == before


# Bad input


def test_outputs_of_a_child_that_are_too_many_are_left_with_it(begin, do):
    child = {"type": "execution", "name": "inner", "steps": [step("x"), step("y")]}
    run = begin(step("child", action=child), step("after", "child"))
    do("x", "y", output="o" * 200_000)
    child_step = run.step("child")
    assert (child_step["state"], child_step["output"], child_step["error"]["code"]) == (
        "COMPLETED",
        None,
        "RESULT_NOT_AVAILABLE",
    )
    assert run.states()["after"] == "PENDING"


def test_a_hook_is_not_handed_the_tracebacks(begin, do):
    run = begin(step("a"), on_error=[{"key": "tell", "action": SCRIPT}])
    attempt = do.crew.hold()
    error = {"code": "BAD", "message": "m" * 5000, "traceback": "t" * 50_000}
    do.crew.report({"attempt": attempt["id"], "event": "FAILED", "error": error})
    [failed] = do.take()["tell"]["job"]["payload"]["failed"]
    assert failed["error"] == {"code": "BAD", "message": "m" * 1000}
    assert run.step("a")["error"] == error


def test_a_blocked_step_of_a_cancelled_execution_ends_and_is_repaired_once(begin):
    run = begin(step("a"), step("b", "a"))
    sql("update jobs_execution set state = 'CANCELLING' where id = %s", run.id)
    for _ in range(3):
        sweep.run_sweep()
    assert run.states() == {"a": "CANCELLED", "b": "CANCELLED"}
    assert run.state == "CANCELLED"
    assert [event["code"] for event in run.events()].count("EXECUTION_REPAIRED") <= 1
