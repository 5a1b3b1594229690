"""REACTIVATE_ON_HEARTBEAT: if it is on, a lost server that sends a heartbeat returns, without attempts that moved."""

import pytest

from jobs.errors import ServerInMaintenance
from jobs.models import Attempt
from jobs.services import propagation
from jobs.services.liveness_check import check_liveness
from liveness.models import Server, ServerEvent
from tests.support.transitions import put

DEAD = ["DISCONNECTED", "NOT_RUNNING", "INACTIVE"]


@pytest.fixture
def reactivating(settings):
    settings.LIVENESS = {"REACTIVATE_ON_HEARTBEAT": True}


def lose(worker, state):
    put(Server.objects.get(pk=worker.id), state)


def state(worker):
    return Server.objects.get(pk=worker.id).state


@pytest.mark.parametrize("dead", DEAD)
@pytest.mark.parametrize("fields", [{}, {"state": "RUNNING"}])
def test_off_nothing_comes_back(worker, dead, fields):
    one = worker()
    lose(one, dead)
    assert one.beat(**fields).status_code == 409
    assert state(one) == dead


@pytest.mark.parametrize("dead", DEAD)
@pytest.mark.parametrize("fields", [{}, {"state": "RUNNING"}])
def test_on_a_heartbeat_brings_it_back_with_an_event_and_it_gets_work_again(reactivating, worker, submit, dead, fields):
    one = worker()
    lose(one, dead)
    answer = one.beat(**fields)
    assert (answer.status_code, answer.json()["state"]) == (200, "RUNNING")
    event = ServerEvent.objects.last()
    assert (event.from_state, event.to_state, event.actor) == (dead, "RUNNING", "server")
    assert "reactivated" in event.reason
    submit()
    assert len(one.claim()) == 1


@pytest.mark.parametrize("dead", ["ERROR", "TERMINATED_GRACEFULLY", "TERMINATED_FORCED"])
def test_on_what_ended_of_itself_stays_ended(reactivating, worker, dead):
    one = worker()
    lose(one, dead)
    one.beat(state="RUNNING")
    assert state(one) == dead


def test_what_was_given_away_stays_given_away(reactivating, worker, submit, clock):
    submit()
    one, heir = worker(config={"worker_task_restart_strategy": "IMMEDIATELY"}), worker(name="heir")
    attempt = one.hold()
    clock.advance(46)
    heir.beat()
    check_liveness()
    second = heir.hold()
    answer = one.beat(running=[{"attempt": attempt["id"]}]).json()
    assert (answer["state"], answer["lost"]) == ("RUNNING", [attempt["id"]])
    assert one.complete(attempt)["code"] == "attempt_superseded"
    assert heir.complete(second)["accepted"]


def test_what_it_still_lists_stays_its_own_and_the_rest_is_recovered_with_its_return(
    reactivating, worker, submit, clock
):
    for _ in range(3):
        submit()
    one = worker()
    listed, forgotten = one.hold(), one.hold()
    claimed = one.hold(running=False)
    clock.advance(46)
    check_liveness()
    assert state(one) == "DISCONNECTED"
    one.beat(running=[{"attempt": listed["id"]}])
    ends = {str(attempt.pk): attempt.state for attempt in Attempt.objects.all()}
    assert ends == {listed["id"]: "RUNNING", forgotten["id"]: "RESUBMITTED", claimed["id"]: "REQUEUED"}
    assert one.complete(listed)["accepted"]


def test_a_server_registered_before_it_was_switched_on_does_not_come_back(worker, settings):
    one = worker()
    settings.LIVENESS = {"REACTIVATE_ON_HEARTBEAT": True}
    lose(one, "NOT_RUNNING")
    assert one.beat().json()["code"] == "server_not_running"


@pytest.mark.parametrize("final_state", ["TERMINATING", "TERMINATED_GRACEFULLY"])
def test_one_that_ends_is_not_brought_back_to_end(reactivating, worker, final_state):
    one = worker()
    lose(one, "NOT_RUNNING")
    assert one.beat(state=final_state).json()["code"] == "server_not_running"


def test_a_server_comes_back_together_with_what_it_has_forgotten_or_not_at_all(
    reactivating, worker, submit, clock, monkeypatch
):
    submit()
    one = worker()
    one.hold()
    clock.advance(46)
    check_liveness()

    def fail(ended):
        raise ServerInMaintenance

    monkeypatch.setattr(propagation, "propagate_counted_ends", fail)
    assert one.beat(running=[]).status_code == 409
    assert (state(one), Attempt.objects.get().state) == ("DISCONNECTED", "RUNNING")
    monkeypatch.undo()
    assert one.beat(running=[]).json()["state"] == "RUNNING"
    assert Attempt.objects.get().state == "RESUBMITTED"
