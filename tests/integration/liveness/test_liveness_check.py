"""The liveness check disconnects silent servers, recovers lost ones and retires them, by the database's clock."""

import pytest
from django.db import DatabaseError

from jobs.models import Attempt
from jobs.services import liveness_check as checking
from jobs.services import recovery
from jobs.services.liveness_check import CheckFailed, check_liveness
from liveness.models import Server, ServerEvent
from liveness.services import detection
from tests.support.http import Worker
from tests.support.transitions import put

ALIVE = ["CREATED", "RUNNING", "MAINTENANCE"]
INTERVAL = 10


@pytest.fixture
def later(clock):
    """Run the next check after an interval, or after `seconds`. Return what it did."""

    def later(seconds=INTERVAL):
        clock.advance(seconds)
        return check_liveness()

    return later


def state(worker):
    return Server.objects.get(pk=worker.id).state


def last_move(worker):
    event = ServerEvent.objects.filter(server_id=worker.id).last()
    return event.from_state, event.to_state, event.actor


def configured(worker, strategy="AFTER_TERMINATION_GRACE_PERIOD", **config):
    return worker(config={"worker_task_restart_strategy": strategy, **config})


@pytest.mark.parametrize("timeout", [45, 100])
@pytest.mark.parametrize("was", ALIVE)
def test_silence_of_exactly_the_timeout_is_endured_and_any_longer_is_not(api, clock, timeout, was):
    one = Worker.register(api("worker"), config={"timeout_seconds": timeout})
    put(Server.objects.get(pk=one.id), was)
    clock.advance(60)
    one.beat()
    clock.advance(timeout)
    check_liveness()
    assert state(one) == was
    clock.advance(0.001)
    check_liveness()
    assert state(one) == "DISCONNECTED"
    assert last_move(one) == (was, "DISCONNECTED", "liveness")
    assert f"its timeout is {timeout} s" in ServerEvent.objects.last().reason


@pytest.mark.parametrize(("delay", "age"), [(45, 45.001), (120, 120)], ids=["the timeout decides", "the delay decides"])
def test_a_young_server_is_spared_until_its_initial_delay_has_passed(worker, clock, settings, delay, age):
    settings.LIVENESS = {"INITIAL_DELAY": delay}
    one = worker()
    clock.advance(age - 0.001)
    check_liveness()
    assert state(one) == "RUNNING"
    clock.advance(0.002)
    check_liveness()
    assert state(one) == "DISCONNECTED"


def test_a_server_without_a_heartbeat_is_silent_since_its_registration(api, clock):
    one = Worker.register(api("worker"))
    clock.advance(45.001)
    check_liveness()
    assert last_move(one) == ("CREATED", "DISCONNECTED", "liveness")


def test_a_server_that_beats_is_never_disconnected(worker, later):
    one = worker()
    for _ in range(20):
        one.beat()
        later()
    assert state(one) == "RUNNING"


@pytest.mark.parametrize("was", ["ERROR", "TERMINATING", "TERMINATED_GRACEFULLY", "TERMINATED_FORCED"])
def test_only_the_alive_are_disconnected(worker, clock, was):
    one = worker()
    put(Server.objects.get(pk=one.id), was)
    clock.advance(46)
    assert check_liveness()["disconnected"] == 0
    assert not ServerEvent.objects.filter(to_state="DISCONNECTED").exists()


def test_disabled_the_check_disconnects_nobody_but_recovers_and_retires_the_lost(worker, submit, settings, later):
    settings.LIVENESS = {"ENABLED": False}
    submit()
    silent, failed = worker(name="silent"), configured(worker, "IMMEDIATELY")
    failed.hold()
    failed.beat(state="ERROR")
    later(100), later()
    assert (state(silent), state(failed)) == ("RUNNING", "NOT_RUNNING")
    assert Attempt.objects.get().state == "RESUBMITTED"


@pytest.mark.parametrize(
    ("strategy", "ends"),
    [
        ("IMMEDIATELY", ["DISCONNECTED", "NOT_RUNNING", "INACTIVE", "INACTIVE"]),
        ("NEVER", ["DISCONNECTED", "NOT_RUNNING", "INACTIVE", "INACTIVE"]),
        ("AFTER_TERMINATION_GRACE_PERIOD", ["DISCONNECTED"] * 4 + ["NOT_RUNNING", "INACTIVE"]),
    ],
)
def test_a_lost_server_goes_one_step_per_check_by_its_strategy(worker, submit, later, strategy, ends):
    submit()
    one = configured(worker, strategy, termination_grace_period_seconds=25)
    one.hold()
    collected = []
    for seconds in [46] + [INTERVAL] * (len(ends) - 1):
        later(seconds)
        collected.append(state(one))
    assert collected == ends
    moves = list(ServerEvent.objects.filter(actor="liveness").values_list("to_state", flat=True))
    assert moves == ["DISCONNECTED", "NOT_RUNNING", "INACTIVE"]
    assert Attempt.objects.get().state == ("RUNNING" if strategy == "NEVER" else "RESUBMITTED")


@pytest.mark.parametrize(
    ("final_state", "holds", "checks"),
    [
        ("TERMINATED_GRACEFULLY", True, 2),
        ("TERMINATED_FORCED", True, 3),
        ("TERMINATED_FORCED", False, 2),
        ("ERROR", True, 3),
        ("ERROR", False, 2),
    ],
)
def test_a_server_that_reported_its_end_is_retired_after_its_grace_period(
    worker, submit, later, final_state, holds, checks
):
    one = configured(worker, termination_grace_period_seconds=15)
    if holds:
        submit()
        one.hold()
    one.beat(state=final_state)
    count = 0
    while state(one) == final_state:
        later()
        count += 1
    assert (state(one), count) == ("NOT_RUNNING", checks)


def test_a_terminating_server_is_lost_when_it_falls_silent(worker, submit, clock):
    submit(), submit()
    one = configured(worker, "IMMEDIATELY")
    one.hold(), one.hold(running=False)
    one.beat(state="TERMINATING")
    clock.advance(44.999)
    assert check_liveness()["recovered"] == {}
    clock.advance(0.002)
    assert check_liveness()["recovered"] == {"RESUBMITTED": 1, "REQUEUED": 1}


def test_a_terminating_server_is_lost_after_grace_period_and_timeout(worker, submit, clock):
    submit()
    one = configured(worker, termination_grace_period_seconds=100)
    one.hold()
    one.beat(state="TERMINATING")
    clock.advance(144.999)
    one.beat()
    assert check_liveness()["recovered"] == {}
    clock.advance(0.002)
    one.beat()
    assert check_liveness()["recovered"] == {"RESUBMITTED": 1}


def test_a_server_is_not_retired_while_an_attempt_is_left_to_recover(worker, submit, later, monkeypatch):
    submit()
    one = configured(worker, "IMMEDIATELY")
    one.hold()
    with monkeypatch.context() as patch:
        patch.setattr(recovery, "recover_attempts", lambda: {})
        later(46), later(), later()
        assert state(one) == "DISCONNECTED"
    later()
    assert Attempt.objects.get().state == "RESUBMITTED"
    assert state(one) == "DISCONNECTED"
    later()
    assert state(one) == "NOT_RUNNING"


@pytest.mark.parametrize("times", [2, 10])
def test_checks_at_one_moment_do_what_one_does(worker, submit, clock, times):
    submit()
    one = configured(worker, "IMMEDIATELY")
    one.hold()
    for expected in ("DISCONNECTED", "NOT_RUNNING", "INACTIVE"):
        clock.advance(46 if expected == "DISCONNECTED" else INTERVAL)
        for _ in range(times):
            check_liveness()
            assert state(one) == expected
    assert ServerEvent.objects.filter(actor="liveness").count() == 3
    assert Attempt.objects.count() == 1


def explode(*args, **more):
    raise DatabaseError("canceling statement due to lock timeout")


@pytest.mark.parametrize(
    "failing",
    ["advance_clock", "disconnect_silent_servers", "recover_attempts", "deactivate_servers", "retire_servers"],
)
def test_a_failing_step_does_not_silence_the_others(worker, submit, later, monkeypatch, failing):
    submit()
    silent, lost, idle, gone = (configured(worker, "IMMEDIATELY") for _ in range(4))
    put(Server.objects.get(pk=gone.id), "NOT_RUNNING")
    idle.beat(state="ERROR")
    lost.hold()
    lost.beat(state="ERROR")
    monkeypatch.setattr(
        {"recover_attempts": recovery, "retire_servers": checking}.get(failing, detection), failing, explode
    )
    with pytest.raises(CheckFailed):
        later(46)
    did = {
        "disconnect_silent_servers": state(silent) == "DISCONNECTED",
        "recover_attempts": Attempt.objects.get().state == "RESUBMITTED",
    }
    assert did == {step: step != failing for step in did}
    if failing not in ("advance_clock", "recover_attempts"):  # retiring and deactivating happen in a later check
        with pytest.raises(CheckFailed):
            later()
        did = {"deactivate_servers": state(gone) == "INACTIVE", "retire_servers": state(idle) == "NOT_RUNNING"}
        assert did == {step: step != failing for step in did}
