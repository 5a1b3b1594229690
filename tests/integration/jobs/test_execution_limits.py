"""Executions with limits: they hold slots from their start to their end."""

import pytest
from django.urls import reverse

from jobs.models import LimitSlot, TakenAttempt, WorkerJob
from jobs.services import limits, sweep
from jobs.services.liveness_check import check_liveness
from tests.support.executions import SCRIPT, Run, step

KEY = "customer:42"
BY_KEY = {"limit": KEY}
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("settled")]


@pytest.fixture(autouse=True)
def rule(api):
    """Return a function that sets a rule. At first one slot of the key may be held."""
    operator = api("operator")

    def rule(pattern=KEY, **fields):
        assert operator.call("put", f"/limits/{pattern}", fields).status_code in (200, 201)

    rule(running=1)
    return rule


@pytest.fixture
def limited(begin):
    """Return a function that begins executions with the key, one for each list of steps."""
    return lambda *steps, **fields: begin(*steps, **{"limits": [KEY], **fields})


def used(key=KEY):
    return sum(LimitSlot.objects.filter(key=key).values_list("amount", flat=True))


def parking(run, key="a"):
    return run.read()["parked_by"], run.client.get(f"/jobs/{run.step(key)['job']}").json()["parked_by"]


def child(*steps, **fields):
    return {"type": "execution", "name": "inner", "steps": list(steps), **fields}


def test_an_execution_waits_until_the_one_before_it_has_ended(limited, do):
    one, two = limited(step("a"), step("b", "a")), limited(step("a"))
    assert one.read()["limits"] == {KEY: 1}
    assert (parking(one), parking(two)) == ((None, None), (BY_KEY, BY_KEY))
    assert used() == 1
    assert do.take()["a"]["job"]["execution"] == one.id
    do("a")
    assert two.states() == {"a": "PENDING"}
    assert do.take().keys() == {"b"}, "the slot is held until the last step has ended"
    do("b")
    assert (one.state, parking(two)) == ("COMPLETED", (None, None))
    do("a")
    assert (two.state, used()) == ("COMPLETED", 0)


def test_an_execution_gets_all_its_slots_or_none(limited, begin, rule):
    rule("other", running=3)
    one = limited(step("a"))
    both = limited(step("a"), limits={KEY: 1, "other": 2})
    assert (both.read()["parked_by"], used("other")) == (BY_KEY, 0)
    other = begin(step("a"), limits={"other": 2})
    one.cancel()
    assert (both.read()["parked_by"], parking(both)[1]) == ({"limit": "other"}, {"limit": "other"})
    other.cancel()
    assert (parking(both), used(), used("other")) == ((None, None), 1, 2)


def test_a_cancelled_execution_frees_its_slots_once_its_code_has_stopped(limited, do):
    one, two, three = (limited(step("a")) for _ in range(3))
    held = do.take()["a"]
    two.cancel()
    assert (two.state, used()) == ("CANCELLED", 1)
    one.cancel()
    assert parking(three) == (BY_KEY, BY_KEY), "the worker has not stopped the code yet"
    do.crew.report({"attempt": held["id"], "event": "CANCELLED"})
    assert (one.state, parking(three)) == ("CANCELLED", (None, None))


@pytest.mark.parametrize("fails", [False, True])
def test_an_execution_frees_its_slots_however_it_ends(limited, do, fails):
    one, two = limited(step("a"), on_error=[{"key": "tell", "action": SCRIPT}]), limited(step("a"))
    do("a", fails=fails)
    assert one.state == ("FAILED" if fails else "COMPLETED")
    assert parking(two) == (None, None)
    if fails:
        do("tell")
    do("a")
    assert used() == 0


def test_steps_that_need_no_worker_begin_with_the_execution(limited):
    one = limited(step("a"))
    wait = limited(step("a", action={"type": "wait", "seconds": 60}), step("b", action=child(step("x"))))
    assert wait.states() == {"a": "PENDING", "b": "PENDING"}
    assert sweep.run_sweep()["repaired"] == {}
    assert wait.states() == {"a": "PENDING", "b": "PENDING"}
    one.cancel()
    assert wait.states() == {"a": "RUNNING", "b": "RUNNING"}
    assert wait.step("b")["child"] is not None


def test_steps_with_conditions_begin_with_the_execution(limited):
    one = limited(step("a"))
    two = limited(
        step("a", when="$.inputs.go == true"), step("b", payload={"x": {"from": "$.inputs.go"}}), inputs={"go": True}
    )
    assert two.states() == {"a": "BLOCKED", "b": "BLOCKED"}
    assert sweep.run_sweep()["repaired"] == {}
    assert two.states() == {"a": "BLOCKED", "b": "BLOCKED"}
    one.cancel()
    assert two.states() == {"a": "PENDING", "b": "PENDING"}


def test_a_child_execution_holds_slots_of_its_own(begin, limited, do):
    one = limited(step("a"))
    parent = begin(step("inner", action=child(step("x"), limits=[KEY])))
    inner = Run(parent.client, parent.step("inner")["child"])
    assert (parking(inner, "x"), parent.read()["parked_by"]) == ((BY_KEY, BY_KEY), None)
    do("a")
    assert one.state == "COMPLETED"
    assert (parking(inner, "x"), used()) == ((None, None), 1)
    do("x")
    assert (parent.state, used()) == ("COMPLETED", 0)


def test_a_cancelled_parent_frees_the_slots_of_its_children(begin, limited):
    parents = [begin(step("inner", action=child(step("x"), limits=[KEY]))) for _ in "ab"]
    waiting = limited(step("a"))
    for parent in parents:
        parent.cancel()
        assert parent.state == "CANCELLED"
    assert (parking(waiting), used()) == ((None, None), 1)


@pytest.mark.parametrize("call", ["rerun", "restart"])
def test_an_execution_that_runs_again_waits_for_its_slots_too(limited, do, call):
    one = limited(step("a"), step("b", "a"))
    do("a")
    do("b", fails=True)
    two = limited(step("a"))
    again = Run(one.client, one.client.post(f"/executions/{one.id}/{call}", {}).json()["id"])
    first = "a" if call == "rerun" else "b"
    assert (again.read()["limits"], parking(again, first)) == ({KEY: 1}, (BY_KEY, BY_KEY))
    two.cancel()
    assert (parking(again, first), used()) == ((None, None), 1)


def test_the_executions_of_a_trigger_wait_for_their_slots(api, limited, do):
    operator, holder = api("operator"), limited(step("a"))
    wanted = {"name": "e", "steps": [step("x")], "limits": [KEY]}
    fields = {"name": "t", "cron": "0 0 1 1 *", "action": SCRIPT, "execution": wanted}
    trigger = operator.post("/triggers", fields).json()
    operator.post(f"/triggers/{trigger['id']}/evaluate", {})
    do.take()
    [attempt] = [held for held in do.held.values() if held["job"]["kind"] == "TRIGGER"]
    do.crew.start(attempt), do.crew.complete(attempt, {"fire": True})
    [slot] = operator.get(f"/triggers/{trigger['id']}").json()["slots"][:1]
    run = Run(operator, slot["execution"])
    assert run.read()["parked_by"] == BY_KEY
    holder.cancel(), do.crew.report({"attempt": do.held["a"]["id"], "event": "CANCELLED"})
    assert (run.read()["parked_by"], used()) == (None, 1)


def test_a_job_that_is_an_execution_carries_limits_in_its_action(limited, submit, do):
    holder = limited(step("a"))
    body = {"action": child(step("x"), limits=[KEY])}
    job = submit.client.post("/jobs", body).json()
    run = Run(submit.client, submit.client.get(f"/jobs/{job['id']}").json()["child"])
    assert run.read()["parked_by"] == BY_KEY
    do("a")
    assert holder.state == "COMPLETED"
    do("x")
    assert (run.state, used()) == ("COMPLETED", 0)


def test_a_step_of_type_execution_refuses_limits(submitter):
    wrong = step("a", action=child(step("x")), limits=[KEY])
    answer = submitter.post("/executions", {"name": "e", "steps": [wrong]})
    assert answer.status_code == 400
    assert "give them to its action" in str(answer.json()["errors"])


@pytest.mark.parametrize("steps", [
    [step("a", limits=[KEY])],
    [step("a", action=child(step("x"), limits=[KEY]))],
    [step("a", action=child(step("x", limits=[KEY])))],
], ids=["step", "child", "step of a child"])  # fmt: skip
def test_a_step_must_not_name_a_key_that_its_execution_holds(submitter, steps):
    answer = submitter.post("/executions", {"name": "e", "steps": steps, "limits": [KEY]})
    assert (answer.status_code, list(answer.json()["errors"])) == (400, ["limits"])


@pytest.mark.parametrize("wrong", ["a", [1], ["a", "a"], ["tag:a"], {"a": 0}, list("abcde")])
def test_wrong_limits_of_an_execution_are_refused(submitter, wrong):
    answer = submitter.post("/executions", {"name": "e", "steps": [step("a")], "limits": wrong})
    assert (answer.status_code, list(answer.json()["errors"])) == (400, ["limits"])


def test_an_execution_without_a_rule_starts_at_once_and_holds_its_slots(begin, rule):
    run = begin(step("a"), limits={"other": 2})
    assert (parking(run), used("other")) == ((None, None), 2)
    rule("other", running=2)
    assert begin(step("a"), limits=["other"]).read()["parked_by"] == {"limit": "other"}


def test_a_rule_that_allows_more_starts_executions(limited, rule):
    limited(step("a"))
    two = limited(step("a"))
    rule(running=2)
    assert parking(two) == (None, None)


def test_at_most_so_many_executions_start_in_a_time(limited, rule):
    rule(starts=1, per_seconds=3600)
    runs = [limited(step("a")) for _ in range(2)]
    assert [run.read()["parked_by"] for run in runs] == [None, BY_KEY]


def test_the_timeout_of_an_execution_begins_with_its_start(limited, clock, worker):
    limited(step("a", unmatched="wait"))
    two = limited(step("a", unmatched="wait"), timeout_seconds=60)
    clock.advance(61)
    sweep.run_sweep()
    assert two.state == "RUNNING"
    assert two.read()["parked_by"] == BY_KEY


def test_a_first_step_that_ends_before_the_start_frees_no_other_step(limited, do):
    limited(step("a"))
    two = limited(step("a", continue_on_failure=True), step("b", "a"))
    two.client.post(f"/jobs/{two.step('a')['job']}/cancel", {})
    assert (two.states(), parking(two, "b")) == ({"a": "CANCELLED", "b": "PENDING"}, (BY_KEY, BY_KEY))
    assert do.take().keys() == {"a"}


def test_a_hold_that_ends_does_not_start_a_first_step(limited, api):
    operator = api("operator")
    limited(step("a"))
    two = limited(step("a"))
    hold = operator.post("/holds", {"of": {"action": "script"}, "mode": "pause"}).json()
    sweep.run_sweep()
    operator.call("delete", f"/holds/{hold['id']}")
    sweep.run_sweep()
    assert parking(two) == (BY_KEY, BY_KEY)


def test_an_execution_keeps_its_slots_while_lost_code_may_still_run(limited, worker, clock):
    one = limited(step("a", on_worker_lost="FAIL"))
    lost = worker(config={"worker_task_restart_strategy": "IMMEDIATELY"})
    held = lost.hold()
    two = limited(step("a"))
    (
        lost.registration,
        TakenAttempt.objects.create(attempt_id=held["id"], job_id=held["job"]["id"], server_id=lost.id, had_begun=True),
    )
    one.cancel(), lost.report({"attempt": held["id"], "event": "CANCELLED"})
    assert (one.state, parking(two)) == ("CANCELLED", (BY_KEY, BY_KEY))
    lost.beat(stopped=[held["id"]])
    assert (parking(two), used()) == ((None, None), 1)


def test_the_sweep_frees_slots_of_executions_that_do_not_exist(limited):
    limited(step("a"))
    LimitSlot.objects.update(execution_id="00000000-0000-0000-0000-000000000001")
    two = limited(step("a"))
    assert two.read()["parked_by"] == BY_KEY
    sweep.run_sweep()
    assert (parking(two), used()) == ((None, None), 1)


def test_a_start_that_was_missed_is_made_up_for(limited, monkeypatch):
    monkeypatch.setattr(limits, "settle_soon", lambda: None)
    run = limited(step("a"))
    assert run.read()["parked_by"] == BY_KEY
    check_liveness()
    assert parking(run) == (None, None)


def test_a_key_shows_the_executions_that_hold_it_and_wait_for_it(limited, api):
    limited(step("a"))
    limited(step("a"))
    [seen] = api("operator").get(f"/limits/{KEY}").json()["keys"]
    assert (seen["key"], seen["used"], seen["allowed"], seen["parked"]) == (KEY, 1, 1, 1)


def test_pages_and_placement_show_what_an_execution_waits_for(limited, reader, submit):
    one, two = limited(step("a")), limited(step("a"))
    page = reader.get(reverse("instance:execution", args=[two.id])).content.decode()
    assert "it starts when the slots of its key" in page
    assert "It holds slots of" in reader.get(reverse("instance:execution", args=[one.id])).content.decode()
    job = two.step("a")["job"]
    placement = two.client.get(f"/jobs/{job}/placement").json()
    assert placement["waiting_for"] == {"what": "limit", "limit": KEY, "until": None}
    assert "Limited:" in reader.get(reverse("instance:job", args=[job])).content.decode()


def test_jobs_of_the_key_wait_while_an_execution_holds_it(limited, submit, worker):
    one = limited(step("a"))
    job = submit(limits=[KEY], unmatched="wait")
    assert WorkerJob.objects.get(pk=job["id"]).parked_by == BY_KEY
    one.cancel()
    assert WorkerJob.objects.get(pk=job["id"]).parked_by is None
