"""Steps are added to an open execution while it is sealed and while its steps end, with real commits."""

import pytest

from jobs.models import Execution
from jobs.services import sweep
from liveness.models import ServerEvent
from liveness.services import tokens
from tests.integration.races.test_execution_races import is_over, work_off
from tests.support.executions import Run, step
from tests.support.http import Caller


@pytest.fixture
def caller(committed):
    return Caller(tokens.create_token("a client", "client"))


@pytest.fixture
def begin(caller):
    def begin(*steps):
        answer = caller.post("/executions", {"name": "race", "steps": list(steps), "sealed": False})
        assert answer.status_code == 201, answer.json()
        return Run(caller, answer.json()["id"])

    return begin


def test_a_step_that_is_added_during_the_seal_is_stored_or_refused(committed, begin, caller, threads):
    for _ in range(3):
        run = begin(step("a"))

        def add(number, run=run):
            return number, caller.post(f"/executions/{run.id}/steps", {"steps": [step(f"s{number}", "a")]})

        adding = [threads(add, number) for number in range(8)]
        sealing = threads(caller.post, f"/executions/{run.id}/seal", {})
        answers = [future.result(60) for future in adding]
        assert sealing.result(60).status_code == 200
        stored = {f"s{number}" for number, answer in answers if answer.status_code == 201}
        refused = [answer for _, answer in answers if answer.status_code != 201]
        assert {(answer.status_code, answer.json()["code"]) for answer in refused} <= {(409, "execution_sealed")}
        assert set(run.states()) == stored | {"a"}
        work_off(committed(name=run.id), is_over(run))
        assert (run.state, set(run.states().values())) == ("COMPLETED", {"COMPLETED"})


def test_a_step_that_is_added_while_the_step_before_it_ends_begins(committed, begin, caller, threads):
    for number in range(6):
        run, worker = begin(step("a")), committed(name=f"w{number}")
        (attempt,) = worker.claim()
        worker.report({"attempt": attempt["id"], "event": "STARTED"})
        ending = threads(worker.report, {"attempt": attempt["id"], "event": "COMPLETED"})
        adding = threads(caller.post, f"/executions/{run.id}/steps", {"steps": [step("b", "a"), step("c")]})
        ending.result(60)
        assert adding.result(60).status_code == 201
        assert run.states() == {"a": "COMPLETED", "b": "PENDING", "c": "PENDING"}
        assert Execution.objects.get(pk=run.id).open_steps == 2
        caller.post(f"/executions/{run.id}/seal", {})
        work_off(worker, is_over(run))
        assert run.state == "COMPLETED"


def test_the_seal_and_the_last_end_at_once_end_the_execution(committed, begin, caller, threads):
    for number in range(6):
        run, worker = begin(step("a")), committed(name=f"w{number}")
        (attempt,) = worker.claim()
        worker.report({"attempt": attempt["id"], "event": "STARTED"})
        ending = threads(worker.report, {"attempt": attempt["id"], "event": "COMPLETED"})
        sealing = threads(caller.post, f"/executions/{run.id}/seal", {})
        ending.result(60), sealing.result(60)
        assert run.state == "COMPLETED"
    assert sweep.run_sweep()["repaired"] == {}


def test_two_seals_at_once_are_one(begin, caller, threads):
    run = begin(step("a"))
    sealing = [threads(caller.post, f"/executions/{run.id}/seal", {}) for _ in range(4)]
    assert {future.result(60).status_code for future in sealing} == {200}
    assert ServerEvent.objects.filter(action="seal_execution").count() == 1


def test_the_same_steps_added_twice_at_once_are_stored_once(begin, caller, threads):
    run = begin(step("a"))
    steps = {"steps": [step(f"s{number}", "a") for number in range(20)]}
    adding = [threads(caller.post, f"/executions/{run.id}/steps", steps) for _ in range(4)]
    assert sorted(future.result(60).status_code for future in adding) == [200, 200, 200, 201]
    assert Execution.objects.get(pk=run.id).open_steps == 21 == len(run.states())
