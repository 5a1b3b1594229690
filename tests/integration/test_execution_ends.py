"""Executions that end otherwise than by their steps: cancelled, over their timeout, with a lost worker, torn."""

import uuid
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

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


def test_a_step_that_is_an_execution_is_cancelled_with_its_child_and_not_failed_or_moved(begin, submitter):
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


def test_the_timeout_of_an_execution_runs_its_hooks_which_are_told_of_it(begin, do, clock):
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


def test_when_a_person_cancels_no_hook_runs_nor_those_of_children_when_a_parent_times_out(begin, clock):
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


def test_a_step_of_a_lost_worker_is_resubmitted_and_the_event_says_so(begin, do, clock, worker):
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


@pytest.mark.parametrize(
    ("steps", "names"),
    [
        ([step("a", "b"), step("b", "a")], ["'a'", "'b'"]),
        ([step("a", "a")], ["'a'"]),
        ([step("a", "ghost")], ["'a'", "'ghost'"]),
        ([step("a"), step("a")], ["a"]),
        ([], []),
        ([step("_server")], ["_server"]),
        ([step("a/b")], []),
        ([step("a", action={"type": "ghost"})], ["execution"]),
        ([step("a", colour="red")], ["colour"]),
        ([step("a", require_worker=True)], ["require_worker"]),
        ([step("c", action={"type": "execution", "name": "x", "steps": [step("a", "a")]})], ["'a'"]),
        ([step("c", timeout_seconds=5, action={"type": "execution", "name": "x", "steps": [step("a")]})], ["action"]),
    ],
)
def test_a_graph_that_cannot_run_is_refused_with_its_steps_named(submitter, steps, names):
    answer = submitter.post("/executions", {"name": "bad", "steps": steps})
    assert answer.status_code == 400
    assert all(name in str(answer.json()["errors"]) for name in names), answer.json()
    assert submitter.get("/executions").json()["items"] == []


def test_ten_thousand_steps_are_taken_and_one_more_is_not(submitter):
    few = {"action": {"type": "script", "command": "x"}}
    steps = [{"key": str(n), **few} for n in range(10_001)]
    answer = submitter.post("/executions", {"name": "big", "steps": steps})
    assert answer.status_code == 400
    assert "10001 steps; at most 10000" in str(answer.json())
    assert submitter.post("/executions", {"name": "big", "steps": steps[1:]}).status_code == 201


def test_a_hook_is_no_execution_and_depends_on_nothing(submitter):
    for fields in ({"action": {"type": "execution", "name": "x", "steps": [step("a")]}}, {"depends_on": ["a"]}):
        hook = {"key": "tell", "action": SCRIPT, **fields}
        answer = submitter.post("/executions", {"name": "bad", "steps": [step("a")], "on_error": [hook]})
        assert answer.status_code == 400


def test_the_same_key_is_the_same_execution_and_with_other_content_a_conflict(submitter):
    body = {"name": "once", "steps": [step("a")], "key": "k"}
    first, again = submitter.post("/executions", body), submitter.post("/executions", body)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["id"] == again.json()["id"]
    other = submitter.post("/executions", {**body, "name": "twice"})
    assert (other.status_code, other.json()["code"]) == (409, "key_conflict")
    header = submitter.post("/executions", {"name": "once", "steps": [step("a")]}, **{"Idempotency-Key": "k"})
    assert header.json()["id"] == first.json()["id"]


def test_an_execution_that_needs_a_worker_and_finds_none_is_refused(submitter, worker):
    body = {"name": "now", "steps": [step("a"), step("b", "a", tags=["gpu"])], "require_worker": True}
    worker()
    answer = submitter.post("/executions", body)
    assert (answer.status_code, answer.json()["code"]) == (503, "no_fresh_workers")
    assert answer.json()["required_tags"] == ["gpu", "script"]
    assert submitter.get("/executions").json()["items"] == []
    worker(tags=["script", "gpu"])
    assert submitter.post("/executions", body).status_code == 201


@pytest.mark.parametrize("where", ["steps", "on_error"])
def test_a_worker_is_required_for_the_steps_of_children_too(submitter, worker, where):
    needy = {"key": "rare", "action": SCRIPT, "tags": ["gpu"]}
    plain = {"key": "a", "action": SCRIPT}
    parts = {"steps": [plain, needy]} if where == "steps" else {"steps": [plain], "on_error": [needy]}
    inner = {"type": "execution", "name": "inner", **parts}
    outer = {"type": "execution", "name": "outer", "steps": [step("inner", action=inner)]}
    body = {"name": "now", "steps": [step("a"), step("child", "a", action=outer)], "require_worker": True}
    assert submitter.post("/executions", body).json()["code"] == "no_fresh_workers"
    worker()
    answer = submitter.post("/executions", body)
    assert (answer.status_code, answer.json()["code"]) == (503, "no_fresh_workers")
    assert submitter.get("/executions").json()["items"] == []
    worker(tags=["script", "gpu"])
    assert submitter.post("/executions", body).status_code == 201


def test_another_clients_execution_is_not_found(begin, api):
    run = begin(step("a"))
    other = api("client")
    for path in (f"/executions/{run.id}", f"/executions/{run.id}/steps/a/logs"):
        assert other.get(path).status_code == 404
    for verb in ("cancel", "rerun"):
        assert other.post(f"/executions/{run.id}/{verb}", {}).status_code == 404
    assert other.get("/executions").json()["items"] == []
    assert api("operator").get(f"/executions/{run.id}").status_code == 200
    assert api("viewer").post(f"/executions/{run.id}/cancel", {}).status_code == 403


def test_what_is_not_there_is_a_404(submitter, begin):
    run = begin(step("a"))
    for path in (f"/executions/{uuid.uuid4()}", f"/executions/{run.id}/steps/ghost/logs"):
        assert submitter.get(path).status_code == 404


def test_the_servers_own_lines_come_in_pages_and_as_json_lines(begin, do, submitter):
    run = begin(step("a"), *[step(f"s{n}", "a") for n in range(5)])
    do("a", fails=True)
    path = f"/executions/{run.id}/steps/_server/logs"
    first = submitter.get(f"{path}?limit=3").json()
    rest = submitter.get(f"{path}?limit=3&cursor={first['next']}").json()
    assert [len(page["items"]) for page in (first, rest)] == [3, 2]
    assert rest["next"] is None
    behind = submitter.get(f"{path}?cursor={rest['last']}").json()
    assert behind == {"items": [], "next": None, "last": rest["last"]}
    lines = submitter.get(path, Accept="application/x-ndjson").content.splitlines()
    assert len(lines) == 5


def test_the_lines_of_a_step_are_read_by_its_key(begin, do, submitter):
    run = begin(step("a"))
    attempt = do.crew.hold()
    do.crew.report({"attempt": attempt["id"], "event": "LOG", "stream": "STDOUT", "lines": ["hello"]})
    items = submitter.get(f"/executions/{run.id}/steps/a/logs").json()["items"]
    assert [item["line"] for item in items] == ["hello"]


def test_a_rerun_with_a_key_is_one_however_often_it_is_asked_for(begin, do, submitter):
    run, other = begin(step("a")), begin(step("b"))
    do("a", "b")
    key = {"Idempotency-Key": "again"}
    first = submitter.post(f"/executions/{run.id}/rerun", {}, **key)
    second = submitter.post(f"/executions/{run.id}/rerun", {}, **key)
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json()["id"] == second.json()["id"]
    taken = submitter.post(f"/executions/{other.id}/rerun", {}, **key)
    assert (taken.status_code, taken.json()["code"]) == (409, "key_conflict")


def test_a_rerun_does_not_expire_by_a_moment_that_has_passed(begin, do, submitter, clock):
    soon = (timezone.now() + timedelta(hours=1)).isoformat()
    run = begin(step("a", good_until=soon), step("b", good_until="2000-01-01T00:00:00Z"))
    sweep.run_sweep()
    do("a")
    assert run.state == "FAILED"
    again = submitter.post(f"/executions/{run.id}/rerun", {}).json()
    sweep.run_sweep()
    execution = submitter.get(f"/executions/{again['id']}").json()
    assert [step["state"] for step in execution["steps"]] == ["PENDING", "PENDING"]


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


def test_a_step_that_is_blocked_in_a_cancelled_execution_ends_and_is_mended_once(begin):
    run = begin(step("a"), step("b", "a"))
    sql("update jobs_execution set state = 'CANCELLING' where id = %s", run.id)
    for _ in range(3):
        sweep.run_sweep()
    assert run.states() == {"a": "CANCELLED", "b": "CANCELLED"}
    assert run.state == "CANCELLED"
    assert [event["code"] for event in run.events()].count("EXECUTION_REPAIRED") <= 1
