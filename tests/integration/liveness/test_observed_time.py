"""Observed time passes only while heartbeats can get in: an outage of the control plane disconnects nobody."""

from datetime import UTC, datetime

import pytest

from jobs.services.liveness_check import check_liveness
from liveness.models import Clock as ClockRow
from liveness.models import Server, ServerEvent
from tests.support.clock import heartbeats_get_in

INTERVAL, TIMEOUT = 10, 45


@pytest.fixture
def clock(clock):
    """Stop wall time except for `step`. The tests look at observed time."""
    ClockRow.objects.update(witnessed=True)
    heartbeats_get_in()
    return clock


def reading():
    return ClockRow.objects.get().reading


def states():
    return dict(Server.objects.exclude(name="web").values_list("name", "state"))


def beat_all(*workers):
    for worker in workers:
        worker.beat()
    heartbeats_get_in()


def live(clock, seconds, beating=(), every=INTERVAL):
    """Advance the wall clock by `seconds`, with a check every `every`; servers send heartbeats just before each."""
    passed = 0
    while passed < seconds:
        clock.step(min(every, seconds - passed))
        passed += every
        if beating:
            beat_all(*beating)
        check_liveness()


def test_time_passes_as_on_the_wall_while_heartbeats_get_in(worker, clock):
    one = worker(name="one")
    began = reading()
    live(clock, 100, [one])
    assert reading() - began == pytest.approx(100)


def test_time_stands_still_while_no_heartbeat_gets_in(worker, clock):
    worker(name="one")
    live(clock, 3 * INTERVAL)
    stopped = reading()
    live(clock, 20 * TIMEOUT)
    assert reading() == stopped
    assert states() == {"one": "RUNNING"}


@pytest.mark.exhaustive
@pytest.mark.parametrize("every", [INTERVAL, 1.5 * INTERVAL, 0.6 * INTERVAL])
@pytest.mark.parametrize("timeout", [TIMEOUT, 3 + 2 * INTERVAL], ids=["default", "shortest allowed"])
def test_an_outage_of_the_web_tier_of_ten_timeouts_disconnects_nobody(worker, clock, every, timeout):
    fleet = [worker(name=f"w{number}", config={"timeout_seconds": timeout}) for number in range(5)]
    live(clock, 60, fleet, every)
    live(clock, 10 * timeout, [], every)
    # They come back one after the other, the last after the cap of its back-off.
    for one in fleet:
        clock.step(timeout / 4 / len(fleet))
        beat_all(one)
        check_liveness()
    live(clock, 60, fleet, every)
    assert set(states().values()) == {"RUNNING"}
    assert not ServerEvent.objects.filter(to_state="DISCONNECTED").exists()


@pytest.mark.parametrize("timeout", [TIMEOUT, 3 + 2 * INTERVAL], ids=["default", "shortest allowed"])
def test_an_outage_of_the_database_or_of_the_executor_disconnects_nobody(worker, clock, timeout):
    fleet = [worker(name=f"w{number}", config={"timeout_seconds": timeout}) for number in range(5)]
    live(clock, 60, fleet)
    clock.step(10 * timeout)  # no beat is stored and no check runs
    beat_all(fleet[0])
    check_liveness()
    for one in fleet:
        clock.step(timeout / 4 / len(fleet))
        beat_all(one)
    check_liveness()
    live(clock, 60, fleet)
    assert set(states().values()) == {"RUNNING"}


@pytest.mark.parametrize("hours", [-1, 1, -24, 24])
def test_a_step_of_the_databases_clock_disconnects_nobody_and_hides_nobody(worker, clock, hours):
    alive, dead = worker(name="alive"), worker(name="dead")
    live(clock, 30, [alive, dead])
    clock.step(hours * 3600)
    live(clock, TIMEOUT, [alive])
    assert states()["alive"] == "RUNNING"
    live(clock, 3 * INTERVAL, [alive])
    assert states()["alive"] == "RUNNING"
    assert states()["dead"] in ("DISCONNECTED", "NOT_RUNNING", "INACTIVE")  # it held nothing


def test_after_an_outage_a_dead_worker_is_found_within_timeout_and_two_intervals(worker, clock):
    alive, dead = worker(name="alive"), worker(name="dead")
    live(clock, 60, [alive, dead])
    live(clock, 10 * TIMEOUT)
    back = reading()
    while states()["dead"] == "RUNNING":
        live(clock, INTERVAL, [alive])
    assert reading() - back <= TIMEOUT + 2 * INTERVAL
    assert states()["alive"] == "RUNNING"


def test_late_checks_count_no_more_than_one_and_a_half_intervals(worker, clock):
    one = worker(name="one")
    began = reading()
    clock.step(10 * INTERVAL)
    beat_all(one)
    check_liveness()
    assert reading() - began == pytest.approx(1.5 * INTERVAL)


@pytest.mark.parametrize(("witness", "passes"), [(True, True), (False, False)])
def test_a_heartbeat_of_the_service_layer_is_a_witness_only_if_marked(worker, clock, witness, passes):
    worker(name="one")
    live(clock, 5 * INTERVAL)
    began = reading()
    for _ in range(5):
        clock.step(INTERVAL)
        heartbeats_get_in(witness)
        check_liveness()
    assert (reading() > began) is passes


def test_the_grace_period_is_observed_time_too(worker, submit, clock):
    submit()
    alive, dead = worker(name="alive"), worker(name="dead", config={"termination_grace_period_seconds": 100})
    dead.hold()
    live(clock, 60, [alive])
    assert states()["dead"] == "DISCONNECTED"
    live(clock, 1000)
    assert submit.client.get("/jobs/" + str(dead_job())).json()["state"] == "RUNNING"
    live(clock, 130, [alive])
    assert submit.client.get("/jobs/" + str(dead_job())).json()["state"] == "PENDING"


def dead_job():
    from jobs.models import WorkerJob

    return WorkerJob.objects.get().pk


def test_the_clock_never_goes_back_for_a_server(worker, clock):
    one = worker(name="one")
    live(clock, 30, [one])
    clock.step(5)
    beat_all(one)
    before = Server.objects.get(name="one").heard_observed
    clock.step(20)
    check_liveness()  # no heartbeat got in: the reading is still what it was before that beat
    beat_all(one)
    assert Server.objects.get(name="one").heard_observed == before > reading()


def test_the_first_check_after_an_outage_disconnects_no_server_that_is_not_back(worker, clock):
    """Worst case: last heartbeat just before the outage, checks as late as possible, shortest allowed timeout."""
    first = worker(name="first")
    last = worker(name="last", config={"timeout_seconds": 3 + 2 * INTERVAL})
    live(clock, 60, [first, last])
    clock.step(3)
    beat_all(first)
    clock.step(9.9)
    check_liveness()
    live(clock, 10 * TIMEOUT, every=1.5 * INTERVAL)
    clock.step(1.5 * INTERVAL)
    beat_all(first)
    check_liveness()
    assert states() == {"first": "RUNNING", "last": "RUNNING"}
    clock.step(23 / 4)  # the cap of its back-off
    beat_all(last)
    live(clock, 60, [first, last])
    assert states() == {"first": "RUNNING", "last": "RUNNING"}


def test_a_server_older_than_the_first_check_is_found_silent_no_later_for_it(worker, clock):
    ClockRow.objects.all().delete()
    ClockRow.objects.create(tick_at=datetime.fromtimestamp(0, UTC))  # as migrations leave it
    clock.step(2 * INTERVAL)
    worker(name="one")
    other = worker(name="other")
    beat_all(other)
    check_liveness()
    live(clock, TIMEOUT - INTERVAL / 2, [other])
    assert states() == {"one": "RUNNING", "other": "RUNNING"}
    live(clock, INTERVAL, [other])
    assert states() == {"one": "DISCONNECTED", "other": "RUNNING"}


def test_after_a_late_check_the_next_late_check_counts_no_more_either(worker, clock):
    one = worker(name="one")
    began = reading()
    for _ in range(3):
        clock.step(10 * INTERVAL)
        beat_all(one)
        check_liveness()
    assert reading() - began == pytest.approx(3 * 1.5 * INTERVAL)


def test_a_witness_from_before_the_clock_was_set_back_proves_nothing(worker, clock):
    """The witness's time is in the future, so it does not prove when its heartbeat arrived."""
    worker(name="one")
    live(clock, 2 * INTERVAL)
    clock.step(3600)
    heartbeats_get_in()
    clock.step(-3600)
    check_liveness()
    before = reading()
    for _ in range(3):
        clock.step(INTERVAL)
        check_liveness()
    assert reading() == before
