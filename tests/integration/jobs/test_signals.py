"""Signals: named messages from outside, for which steps wait."""

import pytest

from jobs import in_process
from jobs.models import Signal, WorkerJob
from jobs.services import waits
from jobs.services.retention import prune_old_rows
from liveness.services import tokens
from tests.support.executions import step
from tests.support.http import Caller
from tests.support.waits import NO_WAIT, wait

KEY = {"Idempotency-Key": "k"}


@pytest.fixture
def send(submitter):
    """Return a function that sends a signal and returns the response."""

    def send(name, body=None, client=submitter, **headers):
        return client.post(f"/signals/{name}", body, **headers)

    return send


def output(run, key):
    return run.step(key)["output"]


def test_a_signal_ends_the_step_that_waits_for_it(begin, send, do):
    run = begin(
        step("a"), wait("paid", "a", signal="paid:42"), step("b", "paid", payload={"from": "$.steps.paid.output"})
    )
    do("a")
    assert run.step("paid")["waiting_for"] == NO_WAIT | {"what": "signal", "signal": "paid:42"}
    answer = send("paid:42", {"amount": 7})
    assert answer.status_code == 201
    assert answer.json().keys() == {"id", "name", "created_at"}
    assert run.states() == {"a": "COMPLETED", "paid": "COMPLETED", "b": "PENDING"}
    assert output(run, "paid") == {"amount": 7}
    assert do.take()["b"]["job"]["payload"] == {"amount": 7}


def test_a_signal_that_comes_before_its_step_waits_is_not_lost(begin, send, do):
    run = begin(step("a"), wait("paid", "a", signal="paid"))
    send("paid", 1)
    assert run.step("paid")["state"] == "BLOCKED"
    do("a")
    assert run.step("paid")["state"] == "RUNNING"
    waits.end_waits()
    assert output(run, "paid") == 1


def test_of_two_signals_the_first_one_counts(begin, send):
    run = begin(wait("paid", signal="paid"))
    send("paid", 1)
    send("paid", 2)
    assert output(run, "paid") == 1


def test_a_signal_from_before_the_execution_does_not_count(begin, send, clock):
    send("paid", 1)
    clock.advance(1)
    run = begin(wait("paid", signal="paid"))
    waits.end_waits()
    assert run.step("paid")["state"] == "RUNNING"


def test_since_seconds_lets_an_earlier_signal_count(begin, send, clock):
    send("paid", 1)
    clock.advance(60)
    late, early = (
        begin(wait("paid", signal="paid", since_seconds=59)),
        begin(wait("paid", signal="paid", since_seconds=60)),
    )
    waits.end_waits()
    assert (late.step("paid")["state"], early.step("paid")["state"]) == ("RUNNING", "COMPLETED")


def test_a_step_of_a_child_gets_signals_since_its_root_was_created(begin, send, do, clock):
    child = {"type": "execution", "name": "inner", "steps": [wait("paid", signal="paid")]}
    run = begin(step("a"), {"key": "child", "depends_on": ["a"], "action": child})
    send("paid")
    clock.advance(60)
    do("a")
    waits.end_waits()
    assert run.state == "COMPLETED"


def test_one_signal_ends_all_steps_that_wait_for_it(begin, send):
    runs = [begin(wait("one", signal="paid"), wait("two", signal="paid"), wait("no", signal="other")) for _ in range(2)]
    send("paid")
    for run in runs:
        assert run.states() == {"one": "COMPLETED", "two": "COMPLETED", "no": "RUNNING"}


def test_a_signal_does_not_reach_another_namespace(begin, send):
    run = begin(wait("paid", signal="paid"))
    red = Caller(tokens.create_token("red", "client", namespace="red"))
    assert send("paid", client=red).status_code == 201
    waits.end_waits()
    assert run.step("paid")["state"] == "RUNNING"
    assert red.post("/signals/paid?namespace=default", None).status_code == 403


def test_the_same_key_sends_a_signal_once(send):
    first = send("paid", 1, **KEY)
    again = send("paid", 1, **KEY)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json()
    other = send("paid", 2, **KEY)
    assert (other.status_code, other.json()["code"]) == (409, "key_conflict")
    assert Signal.objects.count() == 1


@pytest.mark.parametrize("size", [256 * 1024 + 1, 1024 * 1024 - 2, 1024 * 1024 + 1])
def test_a_signal_that_is_too_large_is_refused(send, size):
    answer = send("paid", "x" * (size - 2))
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    assert not Signal.objects.exists()


def test_a_signal_of_the_largest_size_is_accepted(begin, send):
    run = begin(wait("paid", signal="paid"))
    assert send("paid", "x" * (256 * 1024 - 2)).status_code == 201
    assert run.step("paid")["state"] == "COMPLETED"


@pytest.mark.parametrize(("name", "named"), [("x" * 201, "200"), ("ended:nightly", "Only the control plane")])
def test_a_wrong_name_is_refused(send, name, named):
    answer = send(name)
    assert answer.status_code == 400
    assert named in str(answer.json()["errors"])


def test_a_name_of_the_largest_length_is_accepted(send):
    assert send("x" * 200).status_code == 201


@pytest.mark.parametrize("role", ["viewer", "worker"])
def test_only_clients_and_operators_send_signals(send, api, role):
    assert send("paid", client=api(role)).status_code == 403


@pytest.mark.parametrize(
    ("action", "named"),
    [
        ({"signal": ""}, "signal"),
        ({"signal": "a/b"}, "slash"),
        ({"signal": "x" * 201}, "200"),
        ({"signal": "a", "seconds": 1}, "exactly one"),
        ({"signal": "a", "on_timeout": "skip"}, "timeout_seconds"),
        ({"signal": "a", "timeout_seconds": 1, "on_timeout": "approve"}, "not a valid choice"),
        ({"signal": "a", "timeout_seconds": 0}, "timeout_seconds"),
        ({"seconds": 1, "since_seconds": 1}, "Only a wait for a signal"),
    ],
    ids=str,
)
def test_a_wrong_wait_for_a_signal_is_refused(submitter, action, named):
    answer = submitter.post("/executions", {"name": "x", "steps": [wait("a", **action)]})
    assert answer.status_code == 400
    assert named in str(answer.json()["errors"])


def test_the_name_of_a_signal_may_be_a_reference(begin, send):
    run = begin(wait("paid", signal={"from": "$.inputs.signal"}), inputs={"signal": "paid:7"})
    assert run.step("paid")["waiting_for"]["signal"] == "paid:7"
    send("paid:7")
    assert run.state == "COMPLETED"


@pytest.mark.parametrize("value", ["", "a/b", "x" * 201, 7, None], ids=str)
def test_a_referenced_name_that_is_wrong_fails_the_step(begin, value):
    run = begin(wait("paid", signal={"from": "$.inputs.signal"}), inputs={"signal": value})
    error = run.step("paid")["error"]
    assert error["code"] == "INPUT_NOT_AVAILABLE"
    assert "$.inputs.signal" in error["message"]


def test_a_wait_that_times_out_fails(begin, clock):
    run = begin(wait("paid", signal="paid", timeout_seconds=60), step("b", "paid", run_if_skipped=True))
    assert run.step("paid")["waiting_for"]["until"] is not None
    clock.advance(59)
    waits.end_waits()
    assert run.step("paid")["state"] == "RUNNING"
    clock.advance(1)
    assert waits.end_waits() == {"FAILED": 1}
    error = run.step("paid")["error"]
    assert error == {"code": "STEP_TIMEOUT", "message": "waited 60 s for the signal paid"}
    assert run.states() == {"paid": "FAILED", "b": "SKIPPED"}
    assert [event["code"] for event in run.events()] == ["STEP_TIMEOUT", "STEP_SKIPPED"]


def test_a_wait_that_times_out_may_be_skipped(begin, clock):
    later = [step("b", "paid"), step("c", "paid", run_if_skipped=True), step("d", "b", run_if_skipped=True)]
    run = begin(wait("paid", signal="paid", timeout_seconds=60, on_timeout="skip"), *later)
    clock.advance(60)
    assert waits.end_waits() == {"SKIPPED": 1}
    assert run.step("paid")["error"]["code"] == "STEP_TIMEOUT"
    assert run.states() == {"paid": "SKIPPED", "b": "SKIPPED", "c": "PENDING", "d": "PENDING"}
    assert run.step("b")["error"]["cause"] == "STEP_TIMEOUT"


def test_a_timeout_counts_only_observed_time(begin, clock):
    run = begin(wait("paid", signal="paid", timeout_seconds=60))
    clock.step(3600)
    waits.end_waits()
    assert run.step("paid")["state"] == "RUNNING"


def test_a_signal_after_the_timeout_changes_nothing(begin, send, clock):
    run = begin(wait("paid", signal="paid", timeout_seconds=60))
    clock.advance(60)
    waits.end_waits()
    send("paid", 1)
    assert (run.step("paid")["state"], output(run, "paid")) == ("FAILED", None)


def test_a_signal_after_a_cancellation_changes_nothing(begin, send):
    run = begin(wait("paid", signal="paid"))
    run.cancel()
    send("paid", 1)
    assert (run.state, run.step("paid")["state"]) == ("CANCELLED", "CANCELLED")


def test_signals_past_their_time_do_not_count_and_are_deleted(begin, send, do, clock, settings):
    run = begin(step("a"), wait("paid", "a", signal="paid"))
    send("paid")
    clock.step(86_401)
    do("a")
    waits.end_waits()
    assert run.step("paid")["state"] == "RUNNING"
    assert prune_old_rows()["signals"] == 1


def test_a_signal_is_delivered_once_all_its_steps_have_ended(begin, send):
    begin(wait("paid", signal="paid"))
    send("paid")
    send("nobody")
    assert not Signal.objects.filter(is_delivered=False).exists()
    assert not WorkerJob.objects.filter(state="RUNNING").exists()


def test_a_step_that_was_looked_at_is_not_looked_at_again(begin):
    begin(wait("paid", signal="paid"))
    assert WorkerJob.objects.get(step="paid").wait_due_at is not None
    waits.end_waits()
    assert WorkerJob.objects.get(step="paid").wait_due_at is None


def test_code_of_the_project_sends_a_signal(begin):
    run = begin(wait("paid", signal="paid"))
    id = in_process.send_signal("paid", {"n": 1}, key="k")
    assert in_process.send_signal("paid", {"n": 1}, key="k") == id
    waits.end_waits()
    assert output(run, "paid") == {"n": 1}
