"""Loops: how many items run at once, and what a failed item means for the others."""

import pytest

from controlplane.observability.queue_metrics import queue_gauges
from jobs.models import Execution, WorkerJob
from jobs.services import sweep
from jobs.services.retention import prune_old_rows
from tests.integration.jobs.test_fence_of_dependents import GRACE, TIMEOUT, pass_time
from tests.integration.jobs.test_stored_bytes import filled
from tests.support.executions import step
from tests.support.loops import child_of, loop

WAITS = {"max_parallel": "each"}


@pytest.fixture
def each(begin, do):
    """Return a function that begins a loop over a number of items."""

    def each(items, *more, **fields):
        run = begin(step("list"), loop(**fields), *more)
        do("list", output=list(range(items)))
        return run

    return each


@pytest.fixture
def operator(api):
    return api("operator")


def job(run, key):
    return run.client.get(f"/jobs/{child_of(run).step(key)['job']}").json()


def parked(run):
    """Return the keys of the items that wait for another item to end."""
    return [key for key in child_of(run).states() if job(run, key)["parked_by"] == WAITS]


def test_items_that_wait_for_others_are_not_counted_as_limited(each):
    each(4, max_parallel=2)
    *_, family = queue_gauges()
    counts = {sample.labels["by"]: sample.value for sample in family.samples}
    assert counts == {"limit": 0, "hold": 0, "max_parallel": 2}


def test_items_beyond_max_parallel_wait_until_others_end(each, do):
    run = each(4, max_parallel=2)
    assert parked(run) == ["2", "3"]
    assert do.take().keys() == {"0", "1"}
    do("1")
    assert parked(run) == ["3"]
    assert do.take().keys() == {"0", "2"}
    do("0", "2")
    assert parked(run) == []
    do("3")
    assert (run.state, run.step("each")["output"]) == ("COMPLETED", [None] * 4)


def test_placement_shows_that_an_item_waits_for_others(each):
    run = each(2, max_parallel=1)
    placement = run.client.get(f"/jobs/{child_of(run).step('1')['job']}/placement").json()
    assert placement["waiting_for"]["what"] == "max_parallel"
    assert placement["waiting_for"]["step"] == "each"


def test_a_retried_or_lost_item_keeps_its_place(each, do):
    run = each(3, max_parallel=1, max_retries=1)
    do("0", fails=True)
    assert (child_of(run).states()["0"], parked(run)) == ("PENDING", ["1", "2"])
    attempt = do.take()["0"]
    do.crew.report({"attempt": attempt["id"], "event": "RELEASED", "reason": "draining"})
    assert parked(run) == ["1", "2"]


def test_a_cancelled_item_gives_its_place_away(each, do, operator):
    run = each(3, max_parallel=1, fail_fast=False)
    assert operator.post(f"/jobs/{child_of(run).step('0')['job']}/cancel", {}).status_code in (200, 202)
    assert parked(run) == ["2"]
    assert operator.post(f"/jobs/{child_of(run).step('2')['job']}/cancel", {}).status_code in (200, 202)
    assert parked(run) == []
    do("1")
    assert run.step("each")["error"]["code"] == "ITEMS_FAILED"


def test_items_that_are_executions_begin_when_they_may(each, do):
    inner = {"type": "execution", "name": "inner", "steps": [step("a", payload={"n": {"from": "$.inputs.item"}})]}
    run = each(2, max_parallel=1, action=inner)
    assert child_of(run).states() == {"0": "RUNNING", "1": "PENDING"}
    assert sweep.run_sweep() is not None
    assert child_of(run).states() == {"0": "RUNNING", "1": "PENDING"}
    do("a")
    assert child_of(run).states() == {"0": "COMPLETED", "1": "RUNNING"}
    assert do.take()["a"]["job"]["payload"] == {"n": 1}
    do("a")
    assert run.state == "COMPLETED"


def test_a_failed_value_of_an_item_gives_its_place_away(begin, do):
    run = begin(step("list"), loop(payload={"n": {"from": "$.item.n"}}, max_parallel=1, fail_fast=False))
    do("list", output=[{}, {}, {"n": 1}, {"n": 2}])
    assert child_of(run).states() == {"0": "FAILED", "1": "FAILED", "2": "PENDING", "3": "PENDING"}
    assert parked(run) == ["3"]


def test_the_sweep_starts_items_that_nothing_started(each, do):
    run = each(3, max_parallel=2)
    WorkerJob.objects.filter(step__in=["0", "1"]).update(parked_by=WAITS)
    assert parked(run) == ["0", "1", "2"]
    sweep.run_sweep()
    assert parked(run) == ["2"]
    sweep.run_sweep()
    assert parked(run) == ["2"]


def test_parked_items_do_not_fail_for_lack_of_a_worker(each, clock):
    run = each(2, max_parallel=1, tags=["gpu"], fail_fast=False)
    clock.advance(1000)
    sweep.run_sweep()
    assert child_of(run).states() == {"0": "FAILED", "1": "PENDING"}
    sweep.run_sweep()
    assert child_of(run).states() == {"0": "FAILED", "1": "PENDING"}, "the time began when it was unparked"


def test_a_failed_item_cancels_the_others_and_fails_the_step(each, do):
    run = each(4, step("after", "each"), max_parallel=3)
    do.take()
    do("0", output=1)
    do("1", fails=True)
    child = child_of(run)
    assert (child.state, run.step("each")["state"]) == ("CANCELLING", "RUNNING")
    sweep.run_sweep()  # nothing is committed in this test, so the sweep cancels the items
    assert child.states()["3"] == "CANCELLED"
    do.crew.report({"attempt": do.held["2"]["id"], "event": "CANCELLED"})
    assert (child.state, run.state) == ("FAILED", "FAILED")
    error = run.step("each")["error"]
    assert (error["code"], error["child"]) == ("ITEMS_FAILED", child.id)
    assert "Item 1" in error["message"]
    assert run.states()["after"] == "SKIPPED"


def test_a_failed_item_of_the_last_cancels_nothing(each, do):
    run = each(2)
    do("0")
    do("1", fails=True)
    assert (child_of(run).state, run.step("each")["error"]["code"]) == ("FAILED", "ITEMS_FAILED")
    assert "1 of its items did not complete: 1" in run.step("each")["error"]["message"]


def test_without_fail_fast_all_items_run_before_the_step_fails(each, do):
    run = each(3, max_parallel=1, fail_fast=False)
    do("0", fails=True)
    do("1")
    assert run.step("each")["state"] == "RUNNING"
    do("2", fails=True)
    error = run.step("each")["error"]
    assert (run.state, error["code"]) == ("FAILED", "ITEMS_FAILED")
    assert "2 of its items did not complete: 0, 2" in error["message"]
    assert run.step("each")["progress"] == {"total": 3, "done": 1, "failed": 2}


def test_a_step_after_a_failed_loop_runs_with_continue_on_failure(each, do):
    run = each(2, step("after", "each"), continue_on_failure=True)
    do("0", fails=True)
    sweep.run_sweep()
    do.crew.report({"attempt": do.held["1"]["id"], "event": "CANCELLED"})
    assert run.states()["after"] == "PENDING"
    assert child_of(run).states() == {"0": "FAILED", "1": "CANCELLED"}


def test_a_completion_that_comes_while_a_loop_stops_still_counts(each, do):
    run = each(2)
    late = do.take().pop("1")
    do.crew.report({"attempt": late["id"], "event": "STARTED"})
    do("0", fails=True)
    sweep.run_sweep()
    do.crew.report({"attempt": late["id"], "event": "COMPLETED", "output": 7})
    assert child_of(run).states() == {"0": "FAILED", "1": "COMPLETED"}
    assert (child_of(run).state, run.state) == ("FAILED", "FAILED")


def test_a_cancelled_execution_cancels_its_loop_and_all_items(each, do):
    run = each(3, max_parallel=1)
    do.take()
    assert run.cancel().status_code in (200, 202)
    do.crew.report({"attempt": do.held["0"]["id"], "event": "CANCELLED"})
    assert (run.state, child_of(run).state) == ("CANCELLED", "CANCELLED")
    assert set(child_of(run).states().values()) == {"CANCELLED"}
    assert run.step("each")["state"] == "CANCELLED"


def test_a_cancelled_loop_ends_its_step_as_cancelled(each, do, operator):
    run = each(2, step("after", "each"))
    assert operator.post(f"/jobs/{run.step('each')['job']}/cancel", {}).status_code in (200, 202)
    assert set(child_of(run).states().values()) == {"CANCELLED"}
    assert run.states() == {"list": "COMPLETED", "each": "CANCELLED", "after": "SKIPPED"}


def test_a_timeout_of_the_execution_ends_its_loops(begin, do, clock):
    run = begin(step("list"), loop(), timeout_seconds=100)
    do("list", output=[1, 2])
    clock.advance(200)
    sweep.run_sweep()
    assert (run.state, run.read()["error"]["code"]) == ("CANCELLED", "EXECUTION_TIMEOUT")
    assert set(child_of(run).states().values()) == {"CANCELLED"}


def test_a_hold_of_an_execution_holds_the_items_of_its_loops(each, do, operator):
    run = each(2)
    held = operator.post("/holds", {"of": {"execution": run.id}, "mode": "pause"}).json()
    assert do.take() == {}
    assert job(run, "0")["parked_by"] == {"hold": held["id"]}
    assert operator.call("DELETE", f"/holds/{held['id']}").status_code == 204
    assert do.take().keys() == {"0", "1"}


def test_a_rerun_reads_the_list_again(each, do, submitter):
    run = each(2)
    do("0", "1")
    again = type(run)(submitter, submitter.post(f"/executions/{run.id}/rerun", {}).json()["id"])
    do("list", output=["only"])
    assert do.take()["0"]["job"]["payload"] == {"item": "only", "index": 0}
    do("0")
    assert again.state == "COMPLETED"


def test_a_restart_keeps_the_completed_items(each, do, submitter):
    run = each(3, max_parallel=1, fail_fast=False)
    do("0", output="zero")
    do("1", fails=True)
    do("2", output="two")
    again = type(run)(submitter, submitter.post(f"/executions/{run.id}/restart", {}).json()["id"])
    child = child_of(again)
    assert child.states() == {"0": "COMPLETED", "1": "PENDING", "2": "COMPLETED"}
    assert [child.step(key)["kept"] for key in "012"] == [True, False, True]
    assert parked(again) == []
    do("1", output="one")
    assert (again.state, again.step("each")["output"]) == ("COMPLETED", ["zero", "one", "two"])


def test_the_execution_of_the_items_cannot_be_run_again_by_itself(each, do, submitter):
    run = each(1)
    do("0", fails=True)
    for action in ("rerun", "restart"):
        answer = submitter.post(f"/executions/{child_of(run).id}/{action}", {})
        assert answer.status_code == 409
        assert "Run the execution of that step again" in answer.json()["detail"]


def test_a_waiting_loop_has_no_fields_that_can_be_changed(begin, submitter):
    run = begin(step("list"), loop())
    answer = submitter.call("PATCH", f"/jobs/{run.step('each')['job']}", {"priority": 5})
    assert (answer.status_code, answer.json()["code"]) == (409, "step_has_child")


def test_an_expired_item_gives_its_place_away(each, do, clock):
    run = each(2, max_parallel=1, fail_fast=False)
    WorkerJob.objects.filter(step="0").update(good_until="2000-01-01T00:00:00Z")
    sweep.run_sweep()
    assert child_of(run).states()["0"] == "EXPIRED"
    assert parked(run) == []


def test_the_sweep_repairs_a_loop_whose_end_was_not_propagated(each, do):
    run = each(2)
    do.take()
    WorkerJob.objects.filter(step__in=["0", "1"]).update(
        state="CANCELLED", attempt_id=None, finished_at="2000-01-01T00:00:00Z"
    )
    sweep.run_sweep()
    assert run.step("each")["error"]["code"] == "ITEMS_FAILED"


def test_an_item_with_limits_waits_for_its_key_and_keeps_its_place(each, do, operator):
    operator.call("PUT", "/limits/stripe", {"running": 1})
    run = each(3, max_parallel=2, limits=["stripe"])
    assert len(do.take()) == 1
    assert parked(run) == ["2"]


def lose_worker_of_an_item(begin, worker, clock, **fields):
    run = begin(
        step("each", for_each="$.inputs.all", max_parallel=1, fail_fast=False, **fields), inputs={"all": [1, 2]}
    )
    config = {
        "worker_task_restart_strategy": "AFTER_TERMINATION_GRACE_PERIOD",
        "termination_grace_period_seconds": GRACE,
    }
    worker(name="one", old=True, config=config).hold()
    witness = worker(name="witness", old=True, tags=["none"])
    pass_time(clock, TIMEOUT + 10, witness)
    return run, witness


def test_a_failed_item_whose_code_may_still_run_keeps_its_place(begin, worker, clock):
    run, witness = lose_worker_of_an_item(begin, worker, clock, on_worker_lost="FAIL")
    assert child_of(run).states() == {"0": "FAILED", "1": "PENDING"}
    assert parked(run) == ["1"]
    pass_time(clock, GRACE + 5, witness)
    assert parked(run) == []


def test_an_item_of_a_dead_worker_runs_again_before_the_next_one(begin, worker, clock):
    run, witness = lose_worker_of_an_item(begin, worker, clock)
    pass_time(clock, GRACE + 5, witness)
    assert (child_of(run).states(), parked(run)) == ({"0": "PENDING", "1": "PENDING"}, ["1"])
    other = worker(name="other")
    (attempt,) = other.claim()
    assert (attempt["job"]["step"], attempt["number"]) == ("0", 2)
    other.start(attempt)
    other.complete(attempt)
    assert parked(run) == []


def test_retention_deletes_the_items_with_their_execution(begin, do, settings):
    settings.JOBS = {"EXECUTION_RETENTION": 86400}
    run = begin(step("each", for_each="$.inputs.all"), inputs={"all": [1, 2]})
    do("0", "1")
    assert prune_old_rows()["executions"] == 0
    Execution.objects.update(finished_at="2000-01-01T00:00:00Z")
    assert prune_old_rows()["executions"] == 1
    assert run.client.get(f"/executions/{run.id}").status_code == 404
    assert not WorkerJob.objects.filter(execution__isnull=False).exists()
    assert not Execution.objects.exists()


def test_the_bytes_of_items_count_for_their_owner(begin, do, settings):
    settings.JOBS = {"STORED_BYTES_LIMIT": 1_000_000}
    run = begin(
        step("each", for_each="$.inputs.all", payload={"text": "x" * 5000, "n": {"from": "$.item"}}),
        inputs={"all": [1, 2, 3]},
    )
    assert run.step("each")["state"] == "RUNNING"
    assert any(bytes > 20_000 for bytes in filled(""))
