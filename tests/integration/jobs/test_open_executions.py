"""Steps are added to open executions, which end when they are sealed and all of their steps have ended."""

import pytest

from jobs.models import Execution, LimitRule, StepDependency, WorkerJob
from jobs.services import reruns, sweep
from tests.support.executions import SCRIPT, step

pytestmark = pytest.mark.django_db


@pytest.fixture
def add(submitter):
    """Return a function that adds steps to an execution and returns the response."""
    return lambda run, *steps: submitter.post(f"/executions/{run.id}/steps", {"steps": list(steps)})


@pytest.fixture
def seal(submitter):
    return lambda run: submitter.post(f"/executions/{run.id}/seal", {})


def test_an_open_execution_waits_for_its_seal(begin, add, seal, do):
    run = begin(step("a"), sealed=False)
    do("a")
    assert (run.state, run.read()["sealed"]) == ("RUNNING", False)
    answer = add(run, step("b"))
    assert (answer.status_code, answer.json()["progress"]) == (201, {"total": 2, "done": 1, "failed": 0})
    do("b")
    assert run.state == "RUNNING"
    sealed = seal(run)
    assert (sealed.status_code, sealed.json()["state"], sealed.json()["sealed"]) == (200, "COMPLETED", True)
    assert run.read()["finished_at"] is not None


def test_a_sealed_execution_ends_with_its_last_step(begin, add, seal, do):
    run = begin(step("a"), sealed=False)
    add(run, step("b", "a"), step("c", "b"))
    assert seal(run).json()["state"] == "RUNNING"
    for key in "abc":
        assert run.state == "RUNNING"
        do(key)
    assert run.state == "COMPLETED"
    assert run.states() == dict.fromkeys("abc", "COMPLETED")


def test_an_execution_may_begin_without_steps(begin, add, seal, do):
    run = begin(sealed=False)
    assert run.read()["progress"] == {"total": 0, "done": 0, "failed": 0}
    add(run, step("a"))
    do("a")
    seal(run)
    assert run.state == "COMPLETED"


def test_an_open_execution_without_steps_ends_with_its_seal(begin, seal):
    assert seal(begin(sealed=False)).json()["state"] == "COMPLETED"


def test_an_execution_that_is_not_open_needs_a_step(submitter):
    for fields in ({}, {"steps": []}, {"steps": [], "sealed": True}):
        answer = submitter.post("/executions", {"name": "x", **fields})
        assert (answer.status_code, list(answer.json()["errors"])) == (400, ["steps"])


def test_a_step_with_the_same_content_is_added_once(begin, add):
    run = begin(step("a"), sealed=False)
    assert add(run, step("b", "a")).status_code == 201
    again = add(run, step("b", "a"))
    assert (again.status_code, again.json()["progress"]["total"]) == (200, 2)
    assert add(run, step("b", "a"), step("c")).status_code == 201
    assert (WorkerJob.objects.count(), StepDependency.objects.count()) == (3, 1)
    assert Execution.objects.get().open_steps == 3


def test_a_step_with_the_same_key_and_other_content_is_refused(begin, add):
    run = begin(step("a"), sealed=False, on_error=[{"key": "tell", "action": SCRIPT}])
    for other in (step("a", priority=5), step("tell")):
        answer = add(run, step("b"), other)
        assert (answer.status_code, answer.json()["code"], answer.json()["step"]) == (409, "key_conflict", other["key"])
    assert WorkerJob.objects.filter(is_hook=False).count() == 1


def test_no_step_is_added_after_the_seal(begin, add, seal):
    run = begin(step("a"), sealed=False)
    add(run, step("b"))
    seal(run)
    answer = add(run, step("c"))
    assert (answer.status_code, answer.json()["code"]) == (409, "execution_sealed")
    assert add(run, step("b")).status_code == 200, "a repeated call finds what the first one added"


def test_an_execution_is_sealed_by_default(begin, add, seal):
    run = begin(step("a"))
    assert run.read()["sealed"] is True
    assert add(run, step("b")).json()["code"] == "execution_sealed"
    assert seal(run).status_code == 200


def test_a_second_seal_changes_nothing(begin, seal, do):
    run = begin(step("a"), sealed=False)
    first, second = seal(run), seal(run)
    assert (first.status_code, second.status_code) == (200, 200)
    do("a")
    assert (run.state, seal(run).json()["state"]) == ("COMPLETED", "COMPLETED")


def test_a_cancelled_open_execution_takes_no_step_and_no_seal(begin, add, seal, do):
    run = begin(step("a"), sealed=False)
    do("a")
    run.cancel()
    assert run.state == "CANCELLED"
    for answer in (add(run, step("b")), seal(run)):
        assert (answer.status_code, answer.json()["code"]) == (409, "execution_ended")


@pytest.mark.parametrize(("fields", "state"), [({}, "SKIPPED"), ({"continue_on_failure": True}, "PENDING")])
def test_a_step_below_a_failed_step_is_skipped(begin, add, seal, do, fields, state):
    run = begin(step("a", **fields), sealed=False)
    do("a", fails=True)
    add(run, step("b", "a"), step("c", "b"), step("d"))
    assert run.states() == {
        "a": "FAILED",
        "b": state,
        "c": "SKIPPED" if state == "SKIPPED" else "BLOCKED",
        "d": "PENDING",
    }
    if state == "SKIPPED":
        assert run.step("b")["error"]["code"] == run.step("c")["error"]["code"] == "STEP_SKIPPED"
        assert Execution.objects.get().open_steps == 1
        seal(run)
        do("d")
        assert (run.state, run.read()["error"]["code"]) == ("FAILED", "STEPS_FAILED")


@pytest.mark.parametrize("runs", [True, False])
def test_a_step_below_a_skipped_step_runs_if_it_may(begin, add, runs):
    run = begin(step("a", when="1 == 2"), sealed=False)
    assert run.states() == {"a": "SKIPPED"}
    add(run, step("b", "a", run_if_skipped=runs), step("c", "b"))
    expected = ("PENDING", "BLOCKED") if runs else ("SKIPPED", "SKIPPED")
    assert (run.states()["b"], run.states()["c"]) == expected


def test_a_step_below_a_completed_step_begins_at_once_with_its_output(begin, add, do):
    run = begin(step("a"), sealed=False)
    do("a", output={"rows": 3})
    answer = add(
        run, step("b", "a", payload={"rows": {"from": "$.steps.a.output.rows"}}, when="$.steps.a.output.rows > 2")
    )
    assert answer.status_code == 201, answer.json()
    assert run.step("b")["state"] == "PENDING"
    assert WorkerJob.objects.get(step="b").payload == {"rows": 3}


def test_a_step_that_needs_no_worker_begins_at_once(begin, add):
    child = {"type": "execution", "name": "inner", "steps": [step("x")]}
    run = begin(sealed=False)
    add(run, step("c", action=child), step("w", action={"type": "wait", "seconds": 60}))
    assert run.states() == {"c": "RUNNING", "w": "RUNNING"}
    assert run.step("c")["child"] is not None


def test_a_step_for_each_item_of_a_list_may_be_added(begin, add, seal, do):
    run = begin(step("a"), sealed=False)
    do("a", output=[1, 2])
    add(run, step("each", "a", for_each="$.steps.a.output"))
    assert (run.step("each")["state"], run.step("each")["child"] is None) == ("RUNNING", False)
    seal(run)
    do("0", "1")
    assert (run.state, run.read()["progress"]) == ("COMPLETED", {"total": 2, "done": 2, "failed": 0})


@pytest.mark.parametrize(
    ("added", "named"),
    [
        ([step("b", "ghost")], "ghost"),
        ([step("b", "c"), step("c", "b")], "cycle"),
        ([step("b"), step("b")], "same key"),
        ([step("b", "tell")], "tell"),
        ([step("b", payload={"from": "$.steps.a.output"})], "on which it does not depend"),
        ([step("b", "a", payload={"from": "$.steps.ghost.output"})], "which no step has"),
        ([], "steps"),
    ],
)
def test_steps_that_do_not_fit_are_refused_with_their_names(begin, add, added, named):
    run = begin(step("a"), sealed=False, on_error=[{"key": "tell", "action": SCRIPT}])
    answer = add(run, *added)
    assert answer.status_code == 400
    assert named in str(answer.json()["errors"]), answer.json()
    assert WorkerJob.objects.filter(is_hook=False).count() == 1


def test_a_path_may_name_a_step_further_above(begin, add, do):
    run = begin(step("a"), step("b", "a"), sealed=False)
    add(run, step("c", "b", payload={"from": "$.steps.a.output"}))
    do("a", output=7)
    do("b")
    assert WorkerJob.objects.get(step="c").payload == 7


def test_hooks_and_outputs_may_name_steps_that_are_added_later(begin, add, seal, do):
    paths = {"sum": {"from": "$.steps.sum.output"}, "none": {"from": "$.steps.never.output"}}
    hook = {"key": "tell", "action": SCRIPT, "payload": {"sum": {"from": "$.steps.sum.output"}}}
    run = begin(sealed=False, outputs=paths, on_success=[hook])
    add(run, step("sum"))
    do("sum", output=7)
    seal(run)
    assert (run.state, run.read()["outputs"]) == ("COMPLETED", {"sum": 7, "none": None})
    assert WorkerJob.objects.get(step="tell").payload["sum"] == 7


def test_ten_thousand_steps_are_the_most(begin, add, monkeypatch):
    monkeypatch.setattr("jobs.graph.STEPS_LIMIT", 3)
    run = begin(step("a"), sealed=False)
    answer = add(run, step("b"), step("c"), step("d"))
    assert "There would be 4 steps, but at most 3 are allowed." in str(answer.json()["errors"])
    assert add(run, step("b"), step("c")).status_code == 201
    assert add(run, step("d")).status_code == 400


def test_a_client_cannot_add_to_or_seal_the_execution_of_another(begin, api):
    run, other = begin(step("a"), sealed=False), api("client")
    for answer in (
        other.post(f"/executions/{run.id}/steps", {"steps": [step("b")]}),
        other.post(f"/executions/{run.id}/seal", {}),
    ):
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    operator = api("operator")
    assert operator.post(f"/executions/{run.id}/steps", {"steps": [step("b")]}).status_code == 201
    assert operator.post(f"/executions/{run.id}/seal", {"note": "no more steps"}).status_code == 200


def test_the_limit_of_waiting_jobs_counts_for_added_steps(begin, add, settings):
    run = begin(step("a"), sealed=False)
    settings.JOBS = {"WAITING_LIMIT": 3}
    assert add(run, step("b"), step("c"), step("d")).status_code == 429
    assert add(run, step("b"), step("c")).status_code == 201


def test_a_repair_leaves_an_execution_open(begin, do, add, seal):
    run = begin(step("a"), sealed=False)
    do("a")
    assert sweep.run_sweep()["repaired"] == {}
    Execution.objects.update(open_steps=17)
    WorkerJob.objects.update(passed_on=False)
    assert sweep.run_sweep()["repaired"] == {"REPAIRED": 1}
    assert (run.state, Execution.objects.get().open_steps) == ("RUNNING", 0)
    add(run, step("b", "a"))
    do("b")
    seal(run)
    assert run.state == "COMPLETED"


def test_a_crash_after_the_seal_is_repaired(begin, do):
    run = begin(step("a"), sealed=False)
    do("a")
    Execution.objects.update(sealed=True)
    assert sweep.run_sweep()["repaired"] == {"REPAIRED": 1}
    assert run.state == "COMPLETED"


def test_a_rerun_has_the_added_steps(begin, add, seal, do, submitter):
    run = begin(step("a"), sealed=False)
    add(run, step("b", "a"))
    add(run, step("c", "b"))
    seal(run)
    do("a")
    do("b", fails=True)
    again = submitter.post(f"/executions/{run.id}/rerun", {}).json()
    assert [(one["key"], one["depends_on"]) for one in again["steps"]] == [("a", []), ("b", ["a"]), ("c", ["b"])]
    assert again["sealed"] is True
    restarted = submitter.post(f"/executions/{run.id}/restart", {}).json()
    assert [(one["key"], one["state"]) for one in restarted["steps"]] == [
        ("a", "COMPLETED"), ("b", "PENDING"), ("c", "BLOCKED"),
    ]  # fmt: skip


def test_an_execution_that_grew_too_large_is_not_run_again(begin, add, submitter, monkeypatch):
    run = begin(step("a"), sealed=False, inputs={"text": "x" * 300})
    for number in range(4):
        assert add(run, step(f"b{number}")).status_code == 201
    submitter.post(f"/executions/{run.id}/cancel", {"note": "x"})
    monkeypatch.setattr(reruns, "PAYLOAD_BYTES_LIMIT", 1000)
    answer = submitter.post(f"/executions/{run.id}/rerun", {"note": "again"})
    assert answer.status_code in (400, 409, 422) and "may have at most 1000" in answer.json()["detail"]
    assert Execution.objects.count() == 1


def test_added_steps_count_for_the_quota_of_the_namespace(begin, add):
    run = begin(step("a"), sealed=False)
    LimitRule.objects.create(namespace="default", pattern="namespace:default", max_waiting=2, by="ann")
    assert add(run, step("b")).status_code == 201
    answer = add(run, step("c"))
    assert (answer.status_code, answer.json()["code"]) == (429, "quota_exceeded")
    assert WorkerJob.objects.count() == 2


def test_progress_counts_steps_that_ended_and_that_failed(begin, do):
    run = begin(step("a"), step("b"), step("c", "b"), step("d"))
    do("a")
    do("b", fails=True)
    assert run.read()["progress"] == {"total": 4, "done": 3, "failed": 1}
    assert run.client.get("/executions").json()["items"][0]["progress"] == run.read()["progress"]


HOOKS = {name: [{"key": name, "action": SCRIPT}] for name in ("on_error", "on_success", "on_complete")}


@pytest.mark.parametrize(
    ("fails", "expected"),
    [
        (False, {"on_error": "SKIPPED", "on_success": "PENDING", "on_complete": "PENDING"}),
        (True, {"on_error": "PENDING", "on_success": "SKIPPED", "on_complete": "PENDING"}),
    ],
)
def test_hooks_run_after_the_ends_that_they_name(begin, do, fails, expected):
    run = begin(step("a"), **HOOKS)
    assert {run.step(name)["state"] for name in HOOKS} == {"BLOCKED"}
    do("a", fails=fails)
    assert {name: run.step(name)["state"] for name in HOOKS} == expected
    assert [hook["key"] for hook in run.read()["on_complete"]] == ["on_complete"]
    payload = WorkerJob.objects.get(step="on_complete").payload
    assert (payload["execution"]["name"], len(payload["failed"])) == ("nightly", int(fails))


def test_no_hook_runs_after_a_cancellation_by_a_person(begin):
    run = begin(step("a"), **HOOKS)
    run.cancel()
    assert {run.step(name)["state"] for name in HOOKS} == {"CANCELLED"}


def test_hooks_of_an_open_execution_run_after_its_seal(begin, add, seal, do):
    run = begin(step("a"), sealed=False, **HOOKS)
    add(run, step("b"))
    do("a", "b")
    assert run.step("on_complete")["state"] == "BLOCKED"
    seal(run)
    assert (run.step("on_success")["state"], run.step("on_complete")["state"]) == ("PENDING", "PENDING")
    assert run.step("on_error")["state"] == "SKIPPED"


def test_hooks_of_all_kinds_share_the_keys_of_the_steps(submitter):
    body = {"name": "x", "steps": [step("a")], "on_success": [{"key": "a", "action": SCRIPT}]}
    assert "same key" in str(submitter.post("/executions", body).json()["errors"])
