"""Loops: steps that run for each item of a list."""

import json

import pytest
from django.db import connection

from jobs.models import WorkerJob
from tests.support.executions import SCRIPT, step
from tests.support.loops import child_of, loop
from tests.support.queries import CapturedQueries


@pytest.fixture
def each(begin, do):
    """Return a function that begins an execution with a loop over a list, and completes the step of the list."""

    def each(items, *more, **fields):
        run = begin(step("list"), loop(**fields), *more)
        do("list", output=items)
        return run

    return each


def test_a_loop_runs_a_step_for_each_item_and_lists_their_outputs(each, do):
    run = each(["a", {"b": 1}, None], step("sum", "each", payload={"all": {"from": "$.steps.each.output"}}))
    assert run.states() == {"list": "COMPLETED", "each": "RUNNING", "sum": "BLOCKED"}
    assert child_of(run).states() == {"0": "PENDING", "1": "PENDING", "2": "PENDING"}
    payloads = [do.take()[key]["job"]["payload"] for key in "012"]
    assert payloads == [{"item": "a", "index": 0}, {"item": {"b": 1}, "index": 1}, {"item": None, "index": 2}]
    do("2", output="third")
    do("0", output={"first": 1})
    assert run.step("each")["progress"] == {"total": 3, "done": 2, "failed": 0}
    do("1")
    assert (run.step("each")["state"], run.step("each")["output"]) == ("COMPLETED", [{"first": 1}, None, "third"])
    assert do.take()["sum"]["job"]["payload"] == {"all": [{"first": 1}, None, "third"]}
    assert child_of(run).state == "COMPLETED"


def test_a_loop_gets_its_list_from_the_inputs_too(begin, do):
    run = begin(step("each", for_each="$.inputs.files"), inputs={"files": [1, 2], "day": "monday"})
    assert do.take()["1"]["job"]["payload"] == {"files": [1, 2], "day": "monday", "item": 2, "index": 1}
    do("0", "1")
    assert (run.state, run.step("each")["output"]) == ("COMPLETED", [None, None])


def test_items_are_claimed_in_the_order_of_the_list(each, do):
    each(list(range(30)))
    do.crew.beat()
    assert [attempt["job"]["step"] for _ in range(10) for attempt in do.crew.claim(limit=3)] == [
        str(n) for n in range(30)
    ]


def test_a_payload_may_refer_to_the_item_and_to_other_steps(each, do):
    run = each(
        [{"name": "x"}, {"name": "y", "size": 5}],
        payload={
            "file": {"from": "$.item.name"}, "size": {"from": "$.item.size", "default": 0}, "at": [{"from": "$.index"}],
            "of": {"from": "$.steps.list.output[$.index].name"}, "plain": True,
        },
    )  # fmt: skip
    wanted = {"file": "y", "size": 5, "at": [1], "of": "y", "plain": True, "item": {"name": "y", "size": 5}, "index": 1}
    assert do.take()["1"]["job"]["payload"] == wanted
    assert do.held["0"]["job"]["payload"]["size"] == 0
    job = run.client.get(f"/jobs/{child_of(run).step('1')['job']}").json()
    assert job["payload"] == wanted
    assert job["payload_from"] == {
        "/file": "$.item.name", "/size": "$.item.size", "/at/0": "$.index",
        "/of": "$.steps.list.output[$.index].name", "/item": "$.steps.list.output[1]",
    }  # fmt: skip


def test_nothing_in_an_item_is_a_reference_to_a_secret(each, do):
    each([{"secret": "PROD_DB"}])
    assert do.take()["0"]["job"]["payload"]["item"] == {"secret": "PROD_DB"}
    assert "/item" in do.held["0"]["job"]["payload_from"]


def test_fields_of_a_job_apply_to_each_item(each, do):
    run = each(
        [1, 2], name="convert", tags=["python"], max_retries=1, timeout_seconds=60, priority=7, limits=["stripe"],
        on_worker_lost="FAIL", unmatched="wait",
    )  # fmt: skip
    job = run.client.get(f"/jobs/{child_of(run).step('0')['job']}").json()
    fields = ("name", "tags", "max_retries", "timeout_seconds", "priority", "limits", "on_worker_lost", "unmatched")
    assert [job[name] for name in fields] == ["convert", ["python"], 1, 60.0, 7, {"stripe": 1}, "FAIL", "wait"]
    assert WorkerJob.objects.get(pk=job["id"]).required_tags == ["python", "script"]
    do("0", "1", fails=True)
    assert child_of(run).states() == {"0": "PENDING", "1": "PENDING"}
    do("0", "1")
    assert run.state == "COMPLETED"


def test_the_deadline_of_a_loop_is_that_of_its_items(each):
    run = each([1, 2], deadline_seconds=60, on_deadline="cancel")
    jobs = WorkerJob.objects.filter(on_deadline="cancel", deadline_seconds=60)
    assert len(jobs) == 3
    assert len({job.deadline_at for job in jobs}) == 1
    assert run.step("each")["state"] == "RUNNING"


def test_an_empty_list_completes_at_once(each, do):
    run = each([], step("after", "each"))
    each_step = run.step("each")
    assert (each_step["state"], each_step["output"], each_step["child"]) == ("COMPLETED", [], None)
    assert run.states()["after"] == "PENDING"


def test_an_empty_list_of_the_last_step_ends_the_execution(begin):
    run = begin(step("each", for_each="$.inputs.files"), inputs={"files": []})
    assert (run.state, run.step("each")["output"]) == ("COMPLETED", [])


@pytest.mark.parametrize(
    ("output", "code", "words"),
    [
        (None, "INPUT_NOT_AVAILABLE", "no list at $.steps.list.output.files"),
        ({"files": {"a": 1}}, "INPUT_NOT_AVAILABLE", "object"),
        ({"files": "abc"}, "INPUT_NOT_AVAILABLE", "string"),
        ({"files": None}, "INPUT_NOT_AVAILABLE", "null"),
        ({"files": [0] * 1001}, "TOO_MANY_ITEMS", "1001"),
    ],
    ids=["missing", "object", "text", "null", "many"],
)
def test_a_list_that_cannot_be_used_fails_the_step(each, output, code, words):
    run = each(output, step("after", "each"), for_each="$.steps.list.output.files")
    error = run.step("each")["error"]
    assert (run.states(), error["code"]) == ({"list": "COMPLETED", "each": "FAILED", "after": "SKIPPED"}, code)
    assert words in error["message"]
    assert run.state == "FAILED"


def test_a_list_has_at_most_256_kib(begin):
    run = begin(step("each", for_each="$.inputs.files"), inputs={"files": ["x" * 1000] * 300})
    assert (run.state, run.step("each")["error"]["code"]) == ("FAILED", "INPUT_NOT_AVAILABLE")
    assert "262144" in run.step("each")["error"]["message"]


def test_a_list_may_have_a_thousand_items(each, do):
    run = each(list(range(1000)), payload={"n": {"from": "$.item"}})
    assert len(child_of(run).states()) == 1000
    do(*map(str, range(1000)))
    assert run.state == "COMPLETED"


def test_an_expansion_needs_as_many_statements_for_a_thousand_items_as_for_two(begin, do):
    counts = []
    for items in (2, 1000):
        begin(step(f"list{items}"), step("each", f"list{items}", for_each=f"$.steps.list{items}.output", payload={
            "n": {"from": "$.item"}}))  # fmt: skip
        do.take()
        with CapturedQueries(connection) as queries:
            do(f"list{items}", output=[0] * items)
        counts.append(len(queries))
    assert counts[0] == counts[1]


def test_payloads_of_all_items_have_a_limit(each):
    run = each([0] * 1000, payload={"text": "x" * 9000})
    assert run.step("each")["error"]["code"] == "INPUT_NOT_AVAILABLE"
    assert "8388608" in run.step("each")["error"]["message"]


def test_a_missing_value_of_an_item_fails_that_item(each, do):
    run = each([{"n": 1}, {}, {"n": 3}], payload={"n": {"from": "$.item.n"}}, fail_fast=False)
    assert child_of(run).states() == {"0": "PENDING", "1": "FAILED", "2": "PENDING"}
    error = child_of(run).step("1")["error"]
    assert (error["code"], "$.item.n" in error["message"]) == ("INPUT_NOT_AVAILABLE", True)
    do("0", "2")
    assert run.step("each")["error"]["code"] == "ITEMS_FAILED"


def test_a_condition_is_about_the_loop_as_a_whole(each):
    run = each([1, 2], step("after", "each", run_if_skipped=True), when="$.steps.list.output[0] > 5")
    assert run.states() == {"list": "COMPLETED", "each": "SKIPPED", "after": "PENDING"}
    assert run.step("each")["error"]["code"] == "CONDITION_FALSE"


def test_items_may_be_executions_themselves(each, do):
    inner = {
        "type": "execution", "name": "inner", "outputs": {"got": {"from": "$.steps.a.output"}},
        "steps": [step("a", payload={"n": {"from": "$.inputs.item"}, "at": {"from": "$.inputs.index"}})],
    }  # fmt: skip
    run = each([5], action=inner)
    assert do.take()["a"]["job"]["payload"] == {"n": 5, "at": 0}
    do("a", output="done")
    assert (run.state, run.step("each")["output"]) == ("COMPLETED", [{"got": "done"}])


def test_outputs_above_the_limit_stay_with_the_items(each, do):
    run = each([1, 2])
    do("0", "1", output="x" * 200_000)
    assert (run.step("each")["state"], run.step("each")["output"]) == ("COMPLETED", None)
    assert run.step("each")["error"]["code"] == "RESULT_NOT_AVAILABLE"


def test_answers_show_the_fields_of_a_loop(each):
    run = each([1], max_parallel=2, fail_fast=False)
    shown = run.step("each")
    assert [shown[name] for name in ("for_each", "max_parallel", "fail_fast")] == ["$.steps.list.output", 2, False]
    assert [run.step("list")[name] for name in ("for_each", "max_parallel", "fail_fast", "progress")] == [None] * 4
    assert child_of(run).read()["inputs"] == {"items": [1]}
    assert child_of(run).read()["parent"]["step"] == "each"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (loop(for_each="$.steps.list.output["), ["'each'", "$.steps.list.output[", "is no SQL/JSON path"]),
        (loop(for_each="$.steps.nobody.output"), ["'each'", "$.steps.nobody.output", "no step has"]),
        (step("each", for_each="$.steps.list.output"), ["'each'", "on which it does not depend"]),
        (loop(for_each="$.item"), ["'each'", "$.item", "only be in the payload"]),
        (loop(when="$.item > 1"), ["'each'", "$.item > 1", "only be in the payload"]),
        (loop(for_each="$.files"), ["must begin with $.inputs or $.steps.KEY"]),
        (step("x", payload={"n": {"from": "$.index"}}), ["'x'", "$.index", "only be in the payload"]),
        (loop(for_each="$.steps.list.output.password"), ["a loop cannot get a hidden value"]),
        (loop(payload=[1]), ["must be an object"]),
        (loop(payload={"from": "$.item"}), ["must be an object"]),
        (loop(payload={"item": 1}), ["must not have item"]),
        (loop(max_parallel=0), ["max_parallel"]),
        (loop(max_parallel=1001), ["max_parallel"]),
        (loop(for_each=["a"]), ["for_each"]),
        (step("x", max_parallel=2), ["Only a step with for_each has max_parallel."]),
        (step("x", fail_fast=True), ["Only a step with for_each has fail_fast."]),
        (step("x", action={"type": "wait", "seconds": 1}, for_each="$.inputs.n"), ["for_each", "runs no code"]),
    ],
    ids=lambda value: None if isinstance(value, list) else json.dumps(value)[:80],
)
def test_a_wrong_loop_is_refused_and_nothing_is_stored(submitter, wrong, words):
    answer = submitter.post("/executions", {"name": "x", "steps": [step("list"), wrong]})
    assert answer.status_code == 400
    assert all(word in str(answer.json()) for word in words), answer.json()
    assert not WorkerJob.objects.exists()


def test_a_hook_or_a_job_has_no_loop(submitter):
    hook = {"key": "h", "action": SCRIPT, "for_each": "$.inputs.n"}
    assert submitter.post("/executions", {"name": "x", "steps": [step("a")], "on_error": [hook]}).status_code == 400
    assert submitter.post("/jobs", {"action": SCRIPT, "for_each": "$.inputs.n"}).status_code == 400
