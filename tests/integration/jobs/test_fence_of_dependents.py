"""Dependents of an ended step begin only when a next attempt could, not while the failed code may still run."""

import pytest

from jobs.models import TakenAttempt, WorkerJob
from jobs.services import sweep
from jobs.services.liveness_check import check_liveness
from tests.support.executions import SCRIPT, step

pytestmark = pytest.mark.django_db
TIMEOUT, GRACE = 45, 100
HOOK = [{"key": "tell", "action": SCRIPT}]


@pytest.fixture
def lost(begin, worker, clock):
    """Return an execution whose step `a` fails with its lost worker, and the worker: `run, one = lost(strategy)`."""

    def lost(strategy="AFTER_TERMINATION_GRACE_PERIOD", **fields):
        steps = [step("a", on_worker_lost="FAIL", **fields), step("b", "a"), step("c")]
        run = begin(*steps, on_error=HOOK)
        config = {"worker_task_restart_strategy": strategy, "termination_grace_period_seconds": GRACE}
        one = worker(name="one", old=True, config=config)
        WorkerJob.objects.filter(pk=run.step("c")["job"]).update(priority=-1)
        one.hold()
        witness = worker(name="witness", old=True, tags=["none"])
        pass_time(clock, TIMEOUT + 10, witness)
        return run, one, witness

    return lost


def pass_time(clock, seconds, *workers):
    while seconds > 0:
        clock.advance(min(5, seconds))
        seconds -= 5
        for one in workers:
            one.beat()
        check_liveness()


@pytest.mark.parametrize("continues", [False, True])
def test_a_failed_step_holds_its_dependents_back_until_the_fence(lost, clock, continues):
    run, _, witness = lost(continue_on_failure=continues)
    assert run.step("a")["state"] == "FAILED", "it is not kept waiting for that"
    assert run.step("a")["error"]["code"] == "WORKER_CRASHED"
    assert run.step("b")["state"] == "BLOCKED"
    pass_time(clock, GRACE - 15, witness)
    sweep.run_sweep()
    assert run.step("b")["state"] == "BLOCKED", "the fence has not passed"
    pass_time(clock, 20, witness)
    assert run.step("b")["state"] == ("PENDING" if continues else "SKIPPED")


def test_hooks_begin_at_the_fence_and_not_when_the_step_fails(lost, clock, submitter):
    run, _, witness = lost()
    submitter.post(f"/jobs/{run.step('c')['job']}/cancel", {})
    assert (run.state, run.step("tell")["state"]) == ("RUNNING", "BLOCKED")
    pass_time(clock, GRACE + 5, witness)
    assert (run.state, run.step("tell")["state"]) == ("FAILED", "PENDING")


def test_the_sweep_does_not_repair_an_execution_that_is_held_back(lost, clock):
    run, _, witness = lost()
    for _ in range(3):
        assert sweep.run_sweep()["repaired"] == {}
    codes = [event["code"] for event in run.events()]
    assert "EXECUTION_REPAIRED" not in codes and "CODE_MAY_RUN" in codes
    line = next(event["line"] for event in run.events() if event["code"] == "CODE_MAY_RUN")
    assert line == "a: its code may still run on one: what depends on it waits until that has stopped"
    pass_time(clock, GRACE + 5, witness)
    assert run.step("b")["state"] == "SKIPPED"


def test_under_immediately_the_fence_has_passed_when_the_worker_is_lost(lost):
    run, _, _ = lost("IMMEDIATELY")
    assert run.states() == {"a": "FAILED", "b": "SKIPPED", "c": "PENDING"}
    assert not TakenAttempt.objects.exists()


def test_dependents_of_a_step_failed_by_hand_begin_when_its_worker_has_stopped_it(begin, worker, submitter):
    run = begin(step("a", continue_on_failure=True), step("b", "a"))
    one = worker(name="one")
    attempt = one.hold()["id"]
    one.beat(stopped=[])
    assert submitter.post(f"/jobs/{run.step('a')['job']}/fail", {"reason": "no"}).status_code == 200
    assert run.states() == {"a": "FAILED", "b": "BLOCKED"}
    assert one.beat(stopped=[]).json()["lost"] == [attempt]
    assert run.states() == {"a": "FAILED", "b": "BLOCKED"}
    one.beat(stopped=[attempt])
    assert run.states() == {"a": "FAILED", "b": "PENDING"}, "at once, not at the next check"


def test_a_parent_ends_only_when_the_code_of_its_child_has_stopped(begin, worker, clock):
    inner = {"type": "execution", "name": "inner", "steps": [step("x", on_worker_lost="FAIL")]}
    run = begin(step("child", action=inner), step("z", "child"))
    config = {"termination_grace_period_seconds": GRACE}
    worker(name="one", old=True, config=config).hold()
    witness = worker(name="witness", old=True, tags=["none"])
    pass_time(clock, TIMEOUT + 10, witness)
    assert run.states() == {"child": "RUNNING", "z": "BLOCKED"}
    pass_time(clock, GRACE + 5, witness)
    assert run.states() == {"child": "FAILED", "z": "SKIPPED"}


def test_the_page_of_the_execution_shows_what_its_steps_wait_for(lost, staff, clock):
    run, _, witness = lost()
    browser = staff(checks_csrf=False)

    def shown():
        return browser.get(f"/admin/instance/executions/{run.id}/").content.decode()

    assert "may still run on" in shown() and "start after it has stopped" in shown()
    pass_time(clock, GRACE + 5, witness)
    assert "start after it has stopped" not in shown()


def test_an_execution_in_which_nothing_waits_to_begin_ends_with_its_step(begin, worker, submitter):
    run = begin(step("a"))
    worker(name="one").hold()
    submitter.post(f"/jobs/{run.step('a')['job']}/fail", {"reason": "no"})
    assert (run.state, TakenAttempt.objects.count()) == ("FAILED", 1)
    assert run.events() == []


def test_an_execution_that_is_cancelled_while_it_is_held_back_ends(lost):
    run, _, _ = lost()
    assert run.cancel().status_code == 200
    assert run.state == "CANCELLED"
    assert run.states() == {"a": "FAILED", "b": "CANCELLED", "c": "CANCELLED"}
