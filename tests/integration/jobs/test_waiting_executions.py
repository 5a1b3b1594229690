"""Executions that wait for slots: their order, holds, changes of their steps, and code that does not stop."""

import pytest

from jobs.conf import conf
from jobs.models import LimitSlot
from jobs.services import limits
from jobs.services.liveness_check import check_liveness
from tests.support.executions import Run, step

KEY = "customer:42"
BY_KEY = {"limit": KEY}
CANCEL = 60
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("settled")]


@pytest.fixture
def operator(api):
    return api("operator")


@pytest.fixture
def rule(operator):
    """Return a function that sets a rule for the key."""
    return lambda **fields: operator.call("PUT", f"/limits/{KEY}", fields)


@pytest.fixture
def limited(begin):
    return lambda *steps, **fields: begin(*(steps or [step("a")]), **{"limits": [KEY], **fields})


def parked(*runs):
    return [run.read()["parked_by"] for run in runs]


def used(key=KEY):
    return sum(LimitSlot.objects.filter(key=key).values_list("amount", flat=True))


def child(*steps, **fields):
    return {"type": "execution", "name": "inner", "steps": list(steps), **fields}


def test_an_execution_that_needs_many_slots_is_not_overtaken(rule, limited):
    rule(running=2)
    one, large, small = limited(), limited(limits={KEY: 2}), limited()
    assert parked(one, large, small) == [None, BY_KEY, BY_KEY]
    one.cancel()
    assert parked(large, small) == [None, BY_KEY]
    large.cancel()
    too_large, last = limited(limits={KEY: 3}), limited()
    assert parked(small, too_large, last) == [None, BY_KEY, None], "it can never start, so it stops no other one"


def test_an_execution_that_lacks_another_key_lets_the_next_one_start(rule, limited, operator):
    rule(running=0)
    operator.call("PUT", "/limits/other", {"running": 0})
    both, one = limited(limits=[KEY, "other"]), limited()
    rule(running=1)
    assert parked(both, one) == [{"limit": "other"}, None]


@pytest.mark.parametrize("of", ["execution", "limit", "namespace"])
def test_an_execution_on_hold_takes_no_slot(rule, limited, operator, of):
    rule(running=1)
    first, second, third = limited(), limited(), limited(limits={KEY: 1, "own": 1})
    held = {"execution": second.id, "limit": "own", "namespace": "default"}[of]
    hold = operator.post("/holds", {"of": {of: held}, "mode": "pause"}).json()
    first.cancel()
    assert (
        parked(second, third)
        == {
            "execution": [BY_KEY, None],
            "limit": [None, BY_KEY],
            "namespace": [BY_KEY, BY_KEY],
        }[of]
    )
    operator.call("DELETE", f"/holds/{hold['id']}")
    limits.settle_left()
    assert sorted(parked(second, third), key=str) == [None, BY_KEY]
    assert used() == 1


def test_a_hold_that_refuses_a_key_refuses_executions_with_it(submitter, operator):
    operator.post("/holds", {"of": {"limit": KEY}, "mode": "refuse"})
    inner = step("b", action=child(step("x"), limits=[KEY]))
    for body in ({"limits": [KEY], "steps": [step("a")]}, {"steps": [inner]}):
        answer = submitter.post("/executions", {"name": "e", **body})
        assert (answer.status_code, answer.json()["code"]) == (409, "on_hold")
    answer = submitter.post("/jobs", {"action": child(step("x"), limits=[KEY])})
    assert (answer.status_code, answer.json()["code"]) == (409, "on_hold")


def test_a_step_cannot_be_given_a_key_that_an_execution_above_holds(rule, limited):
    rule(running=1)
    run = limited(step("a"), step("inner", action=child(step("x"))))
    inner = Run(run.client, run.step("inner")["child"])
    for job in (run.step("a")["job"], inner.step("x")["job"]):
        answer = run.client.call("PATCH", f"/jobs/{job}", {"limits": [KEY]})
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid")
        assert KEY in answer.json()["detail"]
        assert run.client.call("PATCH", f"/jobs/{job}", {"limits": ["other"]}).status_code == 200


def test_only_the_executions_above_lost_code_keep_their_slots(rule, begin, operator, worker):
    """The code of one child may still run. The other child has ended, so its slot is free."""
    rule(running=2)
    inner = {key: step(key, action=child(step(f"{key}x", on_worker_lost="FAIL"), limits=[KEY])) for key in "ab"}
    parent = begin(*inner.values(), limits=["parent"])
    one = worker(name="one")
    held = {attempt["job"]["step"]: attempt for attempt in one.claim(limit=2)}
    one.report(*[{"attempt": attempt["id"], "event": "STARTED"} for attempt in held.values()])
    operator.post(f"/jobs/{held['ax']['job']['id']}/fail", {})
    one.report({"attempt": held["bx"]["id"], "event": "COMPLETED"})
    assert (parent.state, used(), used("parent")) == ("FAILED", 1, 1)
    one.beat(stopped=[held["ax"]["id"]])
    assert (used(), used("parent")) == (0, 0)


def test_code_that_does_not_stop_keeps_the_slot_of_its_execution(rule, limited, operator, worker, clock, settings):
    settings.JOBS = {**settings.JOBS, "CANCEL_TIMEOUT": CANCEL}
    rule(running=1)
    run, waiting = limited(), limited()
    one = worker(name="one")
    held = one.hold()
    operator.post(f"/jobs/{held['job']['id']}/fail", {})
    assert (run.state, parked(waiting)) == ("FAILED", [BY_KEY])
    one.beat(stopped=[])
    for _ in range(int(conf().cancel_timeout / 10) + 1):
        clock.advance(10)
        one.beat(stopped=[])
        check_liveness()
    assert (used(), parked(waiting)) == (1, [BY_KEY]), "the worker lives and does not stop the code"
    one.report({"attempt": held["id"], "event": "FAILED", "error": {"code": "x"}})
    limits.repair_limits()
    assert (used(), parked(waiting)) == (1, [None])


def test_steps_that_are_added_before_the_start_wait_for_it(rule, limited):
    rule(running=1)
    holder, run = limited(), limited(sealed=False)
    wait = {"type": "wait", "seconds": 60}
    steps = [step("b"), step("c", action=wait)]
    assert run.client.post(f"/executions/{run.id}/steps", {"steps": steps}).status_code == 201
    assert run.states() == {"a": "PENDING", "b": "PENDING", "c": "PENDING"}
    assert run.client.get(f"/jobs/{run.step('b')['job']}").json()["parked_by"] == BY_KEY
    refused = run.client.post(f"/executions/{run.id}/steps", {"steps": [step("d", limits=[KEY])]})
    assert refused.status_code in (400, 409) and KEY in refused.content.decode()
    holder.cancel()
    assert run.states() == {"a": "PENDING", "b": "PENDING", "c": "RUNNING"}
    assert run.client.get(f"/jobs/{run.step('b')['job']}").json()["parked_by"] is None
