"""The next transition of a server without any action: to which state, when and why, as the API shows it."""

import pytest

from jobs.services.liveness_check import check_liveness
from liveness.models import Server
from liveness.selectors.servers import servers_with_silence
from tests.support.http import Worker
from tests.support.transitions import put


@pytest.fixture
def read_server(api):
    viewer = api("viewer")
    return lambda worker: viewer.get(f"/servers/{worker.id}").json()


@pytest.mark.parametrize(
    ("state", "to"),
    [
        ("RUNNING", "DISCONNECTED"),
        ("TERMINATING", "NOT_RUNNING"),
        ("DISCONNECTED", "NOT_RUNNING"),
        ("ERROR", "NOT_RUNNING"),
        ("TERMINATED_FORCED", "NOT_RUNNING"),
        ("NOT_RUNNING", "INACTIVE"),
    ],
)
def test_each_state_has_its_next_one_with_a_time_and_a_reason(worker, read_server, state, to):
    one = worker()
    put(Server.objects.get(pk=one.id), state)
    following = read_server(one)["next_transition"]
    assert following["to"] == to
    assert following["at"] and following["reason"]


def test_after_inactive_there_is_nothing(worker, read_server):
    one = worker()
    put(Server.objects.get(pk=one.id), "INACTIVE")
    assert read_server(one)["next_transition"] is None


def test_a_server_that_the_brake_holds_goes_nowhere(worker, read_server, clock):
    fleet = [worker(name=f"w{number}", old=True) for number in range(4)]
    clock.advance(46)
    check_liveness()
    assert read_server(fleet[0])["next_transition"] is None


def test_the_attempts_it_holds_are_shown(worker, submit, read_server, api):
    submit(), submit()
    one = worker()
    running, claimed = one.hold(), one.hold(running=False)
    states = {attempt["id"]: attempt["state"] for attempt in read_server(one)["attempts"]}
    assert states == {running["id"]: "RUNNING", claimed["id"]: "CLAIMED"}
    one.complete(running)
    assert [attempt["id"] for attempt in read_server(one)["attempts"]] == [claimed["id"]]
    (listed,) = api("operator").get("/servers?type=WORKER").json()["items"]
    assert [attempt["id"] for attempt in listed["attempts"]] == [claimed["id"]]


def late(server):
    row = servers_with_silence().get(pk=server.id)
    return row.silent, row.fresh


@pytest.mark.parametrize(("silent", "is_late", "fresh"), [(5.9, False, True), (6, True, True), (9, True, False)])
def test_late_begins_at_two_intervals_before_a_worker_is_stale(worker, clock, silent, is_late, fresh):
    one = worker()
    clock.advance(silent)
    assert late(one) == (is_late, fresh)


def test_a_new_server_is_late_after_two_intervals_and_only_if_it_is_alive(api, worker, clock):
    new, gone = Worker.register(api("worker")), worker(name="gone")
    gone.beat(state="TERMINATING")
    assert late(new) == (False, False)
    clock.advance(6)
    assert late(new) == (True, False)
    assert not late(gone)[0]


def test_while_observed_time_stands_still_wall_time_decides_who_is_late(worker, clock):
    one = worker()
    clock.step(7)
    assert late(one)[0]


def test_at_the_smallest_multiplier_who_is_stale_is_late(worker, clock, settings):
    settings.LIVENESS = {"STALENESS_MULTIPLIER": 2}
    one = worker()
    clock.advance(6)
    assert late(one) == (True, False)


def test_a_lost_server_waits_out_its_grace_period_only_if_it_holds_something(worker, submit, read_server, api):
    submit()
    one, other = worker(name="holds"), worker(name="holds nothing")
    one.hold()
    for server in (one, other):
        server.beat(state="ERROR")
    assert read_server(one)["next_transition"]["reason"] == "in the check after its attempts have moved"
    assert read_server(other)["next_transition"]["reason"] == "it holds nothing"
