"""Data between steps: references in payloads, conditions, and outputs of executions."""

import pytest

from jobs.models import WorkerJob
from jobs.services import step_data
from liveness.models import ServerEvent
from tests.support.executions import SCRIPT, step


def refused(client, *steps, **fields):
    answer = client.post("/executions", {"name": "x", "steps": list(steps), **fields})
    assert answer.status_code == 400, answer.content
    return str(answer.json()["errors"])


def change(client, run, key, value):
    return client.call("PATCH", f"/jobs/{run.step(key)['job']}", {"payload": value}).json()


def payload(run, key):
    return run.client.get(f"/jobs/{run.step(key)['job']}").json()["payload"]


def test_a_step_gets_values_of_the_steps_before_it(begin, do):
    run = begin(
        step("extract"),
        step("middle", "extract"),
        step("load", "middle", payload={
            "got": {"rows": {"from": "$.steps.extract.output.rows"}, "a/b": [{"from": "$.inputs.day"}]}, "plain": 1,
        }),
        inputs={"day": "monday"},
    )  # fmt: skip
    do("extract", output={"rows": [1, {"two": 2}]})
    do("middle")
    wanted = {"got": {"rows": [1, {"two": 2}], "a/b": ["monday"]}, "plain": 1}
    assert do.take()["load"]["job"]["payload"] == wanted
    paths = {"/got/rows": "$.steps.extract.output.rows", "/got/a~1b/0": "$.inputs.day"}
    assert do.held["load"]["job"]["payload_from"] == paths
    job = run.client.get(f"/jobs/{run.step('load')['job']}").json()
    assert (job["payload"], job["payload_from"]) == (wanted, paths)


def test_a_first_step_reads_inputs_at_once(begin, do):
    run = begin(step("one", payload={"from": "$.inputs.day"}), inputs={"day": {"n": 1}})
    assert run.states() == {"one": "PENDING"}
    assert do.take()["one"]["job"]["payload"] == {"n": 1}


@pytest.mark.parametrize(
    ("path", "output", "fields", "wanted"),
    [
        ("$.steps.a.output.rows", {}, {"default": []}, []),
        ("$.steps.a.output.rows", {"rows": None}, {"default": []}, None),
        ("$.steps.a.output", None, {}, None),
        ("$.steps.a.output[*] ? (@ > 1)", [1, 2, 3], {}, 2),
        ("lax $.steps.a.output[0]", 7, {}, 7),
        ("$.steps.a.state", 7, {}, "COMPLETED"),
    ],
    ids=str,
)
def test_a_path_finds_what_sql_json_finds(begin, do, path, output, fields, wanted):
    begin(step("a"), step("b", "a", payload={"x": {"from": path, **fields}}))
    do("a", output=output)
    assert do.take()["b"]["job"]["payload"] == {"x": wanted}


@pytest.mark.parametrize(
    "value", ["${{ steps.a }}", {"from": "monday"}, {"from": "$.a", "to": 1}, {"from": 1}], ids=str
)
def test_any_other_value_stays_as_it_is(begin, do, value):
    begin(step("a", payload={"x": value}))
    assert do.take()["a"]["job"]["payload"] == {"x": value}


def test_a_missing_value_fails_the_step_and_names_the_path(begin, do):
    run = begin(step("a"), step("b", "a", payload={"x": {"from": "$.steps.a.output.rows"}}), step("c", "b"))
    do("a", output={})
    assert run.states() == {"a": "COMPLETED", "b": "FAILED", "c": "SKIPPED"}
    assert run.step("b")["error"]["code"] == "INPUT_NOT_AVAILABLE"
    assert "$.steps.a.output.rows" in run.step("b")["error"]["message"]
    assert run.state == "FAILED"


def test_a_missing_input_of_a_first_step_ends_the_execution_at_once(begin):
    run = begin(step("a", payload={"from": "$.inputs.no"}), step("b", "a"))
    assert (run.state, run.states()) == ("FAILED", {"a": "FAILED", "b": "SKIPPED"})


def test_values_of_one_payload_have_a_limit(begin, do):
    half = {"from": "$.steps.a.output"}
    run = begin(step("a"), step("b", "a", payload=[half]), step("c", "a", payload=[half, half]))
    do("a", output="x" * 200_000)
    assert run.states() == {"a": "COMPLETED", "b": "PENDING", "c": "FAILED"}
    assert "262144" in run.step("c")["error"]["message"]


def test_a_lost_attempt_gets_the_same_values_again(begin, do, clock):
    run = begin(step("a"), step("b", "a", payload={"from": "$.steps.a.output"}))
    do("a", output={"n": 1})
    first = do.take().pop("b")
    WorkerJob.objects.filter(step="a").update(output={"n": 2})
    do.crew.report({"attempt": first["id"], "event": "RELEASED", "reason": "draining"})
    assert do.take()["b"]["job"]["payload"] == {"n": 1} == payload(run, "b")


def test_a_hook_may_read_every_step(begin, do):
    hook = {"key": "h", "action": SCRIPT, "payload": {"seen": {"from": "$.steps.b.state"}}}
    run = begin(step("a"), step("b"), on_error=[hook])
    do("a")
    do("b", fails=True)
    assert do.take()["h"]["job"]["payload"]["seen"] == "FAILED"
    assert run.step("h")["state"] == "CLAIMED"


@pytest.mark.parametrize(
    ("steps", "named"),
    [
        ([step("a", payload={"from": "$.steps"})], ["'a'", "$.steps", "$.inputs"]),
        ([step("a", payload={"from": "$.inputs ? ("})], ["'a'", "no SQL/JSON path"]),
        ([step("a", payload={"from": "$.steps.b.output"}), step("b")], ["'a'", "'b'", "does not depend"]),
        ([step("a", payload={"from": "$.steps.a.output"})], ["'a'", "does not depend"]),
        ([step("a"), step("b", "a", when="$.steps.nobody.output == 1")], ["'b'", "'nobody'", "no step"]),
        ([step("a", when="$.inputs.x == $.secret")], ["'a'", "$.inputs"]),
        ([step("a", when='$.inputs.x == $"y"')], ["Step", "$.inputs.x == "]),
        ([step("a", payload=[{"from": "$.inputs.x"}] * 101)], ["'a'", "100"]),
        ([step("a", payload={"from": "$.inputs." + "x" * 1000})], ["'a'", "1000"]),
    ],
)  # fmt: skip
def test_a_wrong_path_is_refused_at_submission(submitter, steps, named):
    why = refused(submitter, *steps)
    assert all(name in why for name in named), why
    assert not WorkerJob.objects.exists()


def test_a_quoted_key_and_a_name_like_a_root_are_read_as_names(begin, do):
    begin(step("load-2"), step("b", "load-2", payload={"from": '$.steps."load-2".output."$.x"'}))
    do("load-2", output={"$.x": 1})
    assert do.take()["b"]["job"]["payload"] == 1


def test_a_false_condition_skips_the_step_and_what_depends_on_it(begin, do):
    run = begin(step("check"), step("b", "check", when="$.steps.check.output.rows > 0"), step("c", "b"))
    do("check", output={"rows": 0})
    assert (run.state, run.states()) == ("COMPLETED", {"check": "COMPLETED", "b": "SKIPPED", "c": "SKIPPED"})
    assert run.step("b")["error"]["code"] == "CONDITION_FALSE"
    assert run.step("c")["error"]["code"] == "STEP_SKIPPED"


def test_a_true_condition_lets_the_step_begin(begin, do):
    begin(step("check"), step("b", "check", when="$.steps.check.output.rows > 0"))
    do("check", output={"rows": 1})
    assert "b" in do.take()


def test_a_condition_on_inputs_skips_a_first_step(begin):
    run = begin(step("a", when="$.inputs.deploy == true"), inputs={"deploy": False})
    assert (run.state, run.states()) == ("COMPLETED", {"a": "SKIPPED"})


@pytest.mark.parametrize("condition", ["$.inputs.no == 1", "$.inputs.n", "$.inputs.list[*] > 1"])
def test_a_condition_that_is_neither_true_nor_false_fails_the_step(begin, condition):
    run = begin(step("a", when=condition), inputs={"n": 1, "list": {}})
    assert (run.state, run.step("a")["error"]["code"]) == ("FAILED", "CONDITION_ERROR")
    assert condition in run.step("a")["error"]["message"]


def test_a_step_may_run_although_one_before_it_was_skipped_by_a_condition(begin, do):
    run = begin(
        step("a"), step("b", "a", when="$.steps.a.output == 1"), step("c", "b"),
        step("d", "c", run_if_skipped=True), step("e", "d"),
    )  # fmt: skip
    do("a", output=0)
    assert run.states() == {"a": "COMPLETED", "b": "SKIPPED", "c": "SKIPPED", "d": "PENDING", "e": "BLOCKED"}
    do("d")
    do("e")
    assert run.state == "COMPLETED"


def test_no_step_runs_below_one_that_failed(begin, do):
    run = begin(
        step("a"), step("bad"), step("b", "a", when="$.steps.a.output == 1"),
        step("c", "b", "bad", run_if_skipped=True),
    )  # fmt: skip
    do("a", output=0)
    assert run.states()["c"] == "BLOCKED"
    do("bad", fails=True)
    assert (run.state, run.states()["c"]) == ("FAILED", "SKIPPED")


def test_outputs_of_an_execution_are_read_at_its_end(begin, do):
    outputs = {"total": {"from": "$.steps.sum.output.total"}, "none": {"from": "$.steps.sum.output.no"}, "plain": 3}
    run = begin(step("sum"), outputs=outputs)
    assert run.read()["outputs"] is None
    do("sum", output={"total": 42})
    assert run.read()["outputs"] == {"total": 42, "none": None, "plain": 3}


SLOW = "$.steps.a.output[*] ? ($.steps.a.output[*] == 0)"


def test_outputs_that_take_too_long_are_null_and_hold_up_no_other_end(begin, do, monkeypatch):
    monkeypatch.setattr(step_data, "TIMEOUT", 0.5)
    run = begin(step("a"), outputs={"first": {"from": "$.steps.a.output[0]"}, "slow": {"from": SLOW}, "plain": 3})
    do("a", output=list(range(10_000, 40_000)))
    assert (run.read()["state"], run.read()["outputs"]) == ("COMPLETED", {"first": None, "slow": None, "plain": 3})
    [event] = run.events()
    assert (event["code"], event["line"]) == (
        "OUTPUT_NOT_AVAILABLE", "Reading the outputs took longer than 0.5 s, so they are null",
    )  # fmt: skip


def test_slow_outputs_of_one_execution_leave_those_of_others_as_they_are(begin, do, monkeypatch):
    monkeypatch.setattr(step_data, "TIMEOUT", 0.5)
    slow = begin(step("a"), outputs={"x": {"from": SLOW}})
    quick = begin(step("b"), outputs={"x": {"from": "$.steps.b.output[0]"}})
    do("a", "b", output=list(range(10_000, 40_000)))
    assert (slow.read()["outputs"], quick.read()["outputs"]) == ({"x": None}, {"x": 10_000})


def test_an_output_that_is_too_large_is_null_and_an_event_reports_it(begin, do):
    outputs = {key: {"from": f"$.steps.{key}.output"} for key in "ab"}
    run = begin(step("a"), step("b"), outputs=outputs)
    large = ["x" * 1000] * 200
    do("a", "b", output=large)
    assert run.read()["outputs"] == {"a": large, "b": None}
    [event] = run.events()
    assert event["code"] == "OUTPUT_NOT_AVAILABLE"
    assert event["line"] == "Outputs: The values have more than 262144 bytes, so the one at $.steps.b.output is null"


def test_outputs_of_a_child_are_the_output_of_its_step(begin, do):
    child = {"type": "execution", "name": "inner", "steps": [step("x")], "outputs": {"y": {"from": "$.steps.x.output"}}}
    run = begin(
        step("a"), step("child", "a", action=child, payload={"n": {"from": "$.steps.a.output"}}),
        step("last", "child", payload={"from": "$.steps.child.output.y"}),
    )  # fmt: skip
    do("a", output=5)
    assert do.take()["x"]["job"]["payload"] == {"n": 5}
    do("x", output="done")
    assert do.take()["last"]["job"]["payload"] == "done"
    assert run.step("child")["output"] == {"y": "done"}


def test_a_value_from_a_hidden_place_stays_hidden(begin, do):
    run = begin(
        step("a", payload={"x": {"from": "$.inputs.password"}}), inputs={"password": "s3cr3t"},
        outputs={"x": {"from": "$.inputs.password"}},
    )  # fmt: skip
    assert do.take()["a"]["job"]["payload"] == {"x": "s3cr3t"}
    do("a")
    assert payload(run, "a") == {"x": "***"}
    assert run.read()["outputs"] == {"x": "***"}


def test_a_child_gets_no_hidden_value(submitter):
    child = {"type": "execution", "name": "inner", "steps": [step("x")]}
    why = refused(submitter, step("a", action=child, payload={"x": {"from": "$.inputs.password"}}))
    assert "hidden" in why


def test_a_path_that_takes_too_long_fails_its_step_and_no_other(begin, do):
    slow = "exists($.steps.a.output[*] ? ($.steps.a.output[*] == 0))"
    run = begin(step("a"), step("b", "a", when=slow), step("c", "a", when="$.steps.a.output[0] > 1"))
    do("a", output=list(range(10_000, 40_000)))
    assert run.states() == {"a": "COMPLETED", "b": "FAILED", "c": "PENDING"}
    assert "took longer" in run.step("b")["error"]["message"]


def test_the_error_of_a_step_that_was_not_tried_names_the_slow_ones(begin, do, monkeypatch):
    monkeypatch.setattr(step_data, "TIMEOUT", 0.3)
    monkeypatch.setattr(step_data, "SLOW_LIMIT", 1)
    slow = "exists($.steps.a.output[*] ? ($.steps.a.output[*] == 0))"
    run = begin(step("a"), step("b", "a", when=slow), step("c", "a", when=slow))
    do("a", output=list(range(10_000, 40_000)))
    tried, untried = sorted(run.step(key)["error"]["message"] for key in "bc")
    assert tried == "Reading the paths of this step took longer than 0.3 s"
    assert untried.startswith("The paths of this step were not read, because those of 1 steps")


@pytest.mark.parametrize("is_resolved", [False, True], ids=["blocked", "pending"])
def test_a_new_payload_of_a_waiting_step_is_used_as_it_is(begin, do, submitter, is_resolved):
    refers = {"from": "$.inputs.password"}
    run = begin(step("a"), step("b", "a", payload=[1, refers]), inputs={"password": "s3cr3t"})
    if is_resolved:
        do("a")
    assert change(submitter, run, "b", {"x": refers})["payload_from"] is None
    if not is_resolved:
        do("a")
    assert do.take()["b"]["job"]["payload"] == {"x": refers} == payload(run, "b")


def test_the_event_of_a_new_payload_hides_what_was_hidden(begin, submitter):
    run = begin(step("a", payload=[{"from": "$.inputs.password"}]), inputs={"password": "s3cr3t"})
    change(submitter, run, "a", 2)
    assert ServerEvent.objects.get(action="change_job").changes == {"payload": {"old": ["***"], "new": 2}}


def test_a_restart_reads_outputs_of_kept_steps(begin, do, submitter):
    run = begin(step("a"), step("b", "a", payload={"from": "$.steps.a.output"}))
    do("a", output=1)
    do("b", fails=True)
    again = submitter.post(f"/executions/{run.id}/restart", {}).json()
    assert do.take()["b"]["job"]["payload"] == 1
    assert again["steps"][1]["state"] == "PENDING"
