"""Executions: dependencies between steps, skipped steps after failures, hooks, children."""

import pytest
from django.db import connection

from controlplane.core.json_bodies import size_of
from jobs.services import cancellation, execution_rows
from tests.support.executions import SCRIPT, step
from tests.support.queries import CapturedQueries

pytestmark = pytest.mark.django_db


def test_independent_steps_are_pending_at_once_and_the_others_blocked(begin):
    run = begin(step("a"), step("b"), step("c", "a", "b"))
    assert run.states() == {"a": "PENDING", "b": "PENDING", "c": "BLOCKED"}
    assert run.state == "RUNNING"


def test_a_step_begins_when_the_last_that_it_depends_on_has_completed(begin, do):
    run = begin(step("a"), step("b"), step("c", "a", "b"))
    do("a")
    assert run.states()["c"] == "BLOCKED"
    do("b")
    assert run.states()["c"] == "PENDING"
    do("c")
    assert run.state == "COMPLETED"
    assert run.read()["finished_at"] is not None


def test_a_claim_names_the_execution_and_the_step_of_an_attempt(begin, do):
    run = begin(step("a"))
    job = do.take()["a"]["job"]
    assert (job["execution"], job["step"]) == (run.id, "a")


def test_what_depends_on_a_failed_step_is_skipped_transitively(begin, do):
    run = begin(step("a"), step("b", "a"), step("c", "b"), step("d", "c"), step("e"))
    do("a", fails=True)
    assert run.states() == {"a": "FAILED", "b": "SKIPPED", "c": "SKIPPED", "d": "SKIPPED", "e": "CLAIMED"}
    assert run.state == "RUNNING"
    do("e")
    assert run.state == "FAILED"
    assert run.read()["error"]["code"] == "STEPS_FAILED"
    assert [event["step"] for event in run.events() if event["code"] == "STEP_SKIPPED"] == ["b", "c", "d"]


def test_with_continue_on_failure_dependents_run_and_the_execution_completes(begin, do):
    run = begin(step("a", continue_on_failure=True), step("b", "a"))
    do("a", fails=True)
    assert run.states()["b"] == "PENDING"
    do("b")
    assert run.state == "COMPLETED"


def test_a_hook_runs_only_after_a_failure_and_gets_the_failed_steps(begin, do):
    run = begin(step("a"), step("b", "a"), on_error=[{"key": "tell", "action": SCRIPT, "payload": {"to": "ops"}}])
    assert run.step("tell")["state"] == "BLOCKED"
    do("a", fails=True)
    assert run.state == "FAILED"
    payload = do.take()["tell"]["job"]["payload"]
    assert payload["to"] == "ops"
    assert payload["execution"] == {"id": run.id, "name": "nightly"}
    assert payload["failed"] == [{"step": "a", "state": "FAILED", "error": {"code": "BAD", "message": "no"}}]
    assert payload["error"]["code"] == "STEPS_FAILED"
    assert payload["duration_seconds"] >= 0
    do("tell")
    assert run.step("tell")["state"] == "COMPLETED"


def test_the_hook_of_an_execution_that_completes_is_skipped(begin, do):
    run = begin(step("a"), on_error=[{"key": "tell", "action": SCRIPT}])
    do("a")
    assert run.state == "COMPLETED"
    assert run.step("tell")["state"] == "SKIPPED"


def test_a_hooks_own_failure_is_an_event_and_nothing_more(begin, do):
    run = begin(step("a"), on_error=[{"key": "tell", "action": SCRIPT}])
    do("a", fails=True)
    do("tell", fails=True)
    assert run.state == "FAILED"
    assert [event["code"] for event in run.events()] == ["HOOK_FAILED"]


def test_a_step_without_a_payload_gets_the_inputs(begin, do):
    begin(step("a"), step("b", payload={"own": 1}), inputs={"day": "monday"})
    held = do.take()
    assert held["a"]["job"]["payload"] == {"day": "monday"}
    assert held["b"]["job"]["payload"] == {"own": 1}


def nested(levels):
    inner = {"type": "execution", "name": "level 0", "steps": [step("work")]}
    for level in range(1, levels):
        inner = {"type": "execution", "name": f"level {level}", "steps": [step("child", action=inner)]}
    return inner


def test_a_number_beyond_64_bits_is_handed_on_and_run_again(begin, do, submitter):
    child = {"type": "execution", "name": "inner", "steps": [step("x")]}
    run = begin(step("a"), step("b", "a", action=child), inputs={"large": 1e30})
    do("a")
    # PostgreSQL stores 1e30 as a whole number.
    assert do.take()["x"]["job"]["payload"] == {"large": 10**30}
    do("x")
    assert run.state == "COMPLETED"
    again = submitter.post(f"/executions/{run.id}/rerun", {})
    assert again.status_code == 201
    assert float(again.json()["inputs"]["large"]) == 1e30


def test_a_child_five_levels_deep_ends_its_parents_with_its_outputs(begin, do):
    run = begin(step("child", action=nested(5)), step("after", "child"))
    assert run.states() == {"child": "RUNNING", "after": "BLOCKED"}
    do("work", output=42)
    assert run.states() == {"child": "COMPLETED", "after": "PENDING"}
    output = run.step("child")["output"]
    for _ in range(4):
        output = output["child"]
    assert output == {"work": 42}


def test_a_failure_goes_up_five_levels(begin, do):
    run = begin(step("child", action=nested(5)), step("after", "child"))
    do("work", fails=True)
    assert run.states() == {"child": "FAILED", "after": "SKIPPED"}
    assert run.state == "FAILED"
    assert run.step("child")["error"]["message"] == "Child execution level 4 failed"


def test_a_cancellation_goes_down_five_levels(begin, do, submitter):
    run = begin(step("child", action=nested(5)), step("after", "child"))
    answer = submitter.post(f"/executions/{run.id}/cancel", {})
    assert answer.status_code == 200
    assert answer.json()["state"] == "CANCELLED"
    assert run.states() == {"child": "CANCELLED", "after": "CANCELLED"}
    assert submitter.get("/executions?state=CANCELLED").json()["items"][-1]["id"] == run.id
    assert len(submitter.get("/executions?state=CANCELLED").json()["items"]) == 6


def test_a_child_shows_its_parent(begin, submitter):
    run = begin(step("child", action=nested(1)))
    child = run.step("child")["child"]
    parent = {"execution": run.id, "step": "child", "job": run.step("child")["job"]}
    assert submitter.get(f"/executions/{child}").json()["parent"] == parent


def queries(call):
    with CapturedQueries(connection) as captured:
        call()
    return len(captured)


@pytest.mark.exhaustive
def test_fan_out_to_five_thousand_takes_no_query_per_step(begin, do):
    run = begin(step("a"), *[step(f"s{n}", "a") for n in range(5000)])
    do.take()
    few = queries(lambda: do("a"))
    assert few < 20
    assert set(run.states().values()) == {"COMPLETED", "PENDING"}


@pytest.mark.exhaustive
def test_fan_in_of_five_thousand_takes_no_query_per_step(begin, do):
    keys = [f"s{n}" for n in range(5000)]
    run = begin(*map(step, keys), step("z", *keys))
    do.take()
    count = queries(lambda: do(*keys))
    assert count < 10 * 20  # ten calls of 500 reports
    assert run.states()["z"] == "PENDING"


def test_a_chain_of_a_thousand_is_skipped_in_one_go(begin, do):
    run = begin(step("0"), *[step(str(n), str(n - 1)) for n in range(1, 1000)])
    do.take()
    assert queries(lambda: do("0", fails=True)) < 20
    assert run.state == "FAILED"
    assert list(run.states().values()).count("SKIPPED") == 999


def test_a_step_that_no_execution_can_have_is_not_found(begin, submitter):
    run = begin(step("a"))
    for key in ("other", "%00", "a%00"):
        answer = submitter.get(f"/executions/{run.id}/steps/{key}/logs")
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


def test_inputs_that_every_step_would_be_handed_are_not_multiplied_beyond_measure(begin, submitter, monkeypatch):
    child = {"type": "execution", "name": "inner", "steps": [step("x")]}
    steps = [step("a"), step("b", payload=1), step("c", action=child)]
    stored = {"type": "execution", "name": "inner", "steps": [{**step("x"), "action": {**SCRIPT, "runner": "local"}}]}
    copies = 3 * size_of({"text": "x" * 100}) + 1 + 2 * size_of(stored)
    monkeypatch.setattr(execution_rows, "PAYLOAD_BYTES_LIMIT", copies)
    begin(*steps, inputs={"text": "x" * 100})
    monkeypatch.setattr(execution_rows, "PAYLOAD_BYTES_LIMIT", copies - 1)
    answer = submitter.post("/executions", {"name": "x", "steps": steps, "inputs": {"text": "x" * 100}})
    assert answer.status_code == 400
    assert list(answer.json()["errors"]) == ["inputs"]


def test_between_a_cancellation_and_the_sweep_no_step_is_claimed(begin, worker):
    run = begin(step("a"), step("b"))
    cancellation.stop_executions([run.id], "CANCELLED", "by hand")
    assert run.states() == {"a": "PENDING", "b": "PENDING"}, "the second transaction has not been yet"
    assert worker(max_concurrent=9).claim() == []
