"""Every way in which a worker ends, under each restart strategy: when its attempts and its server change.

The timeout is 45 s, the grace period 100 s, and a check runs every 10 s. A row has the number of the check that ends
the attempt, and of the check that finds the server NOT_RUNNING. 1 is the next check. INACTIVE follows one check later.
"""

import itertools

import pytest

from jobs.models import Attempt
from jobs.services.liveness_check import check_liveness
from liveness.models import Server, ServerEvent

INTERVAL, TIMEOUT, GRACE = 10, 45, 105
AFTER, AT_ONCE, NEVER = "AFTER_TERMINATION_GRACE_PERIOD", "IMMEDIATELY", "NEVER"


def graceful(worker):
    """SIGTERM, and everything finished in time: nothing is left, because the server lists no attempts any more."""
    worker.beat(state="TERMINATING")
    worker.beat(state="TERMINATED_GRACEFULLY")


def forced(worker):
    """SIGTERM, and the grace period passed."""
    worker.beat(state="TERMINATING")
    worker.beat(state="TERMINATED_FORCED")


def forced_at_once(worker):
    """Report a forced end from an alive state, because the heartbeat before was lost."""
    worker.beat(state="TERMINATED_FORCED")


def killed(worker):
    """SIGKILL: no heartbeat comes any more."""


def silent_while_terminating(worker):
    worker.beat(state="TERMINATING")


def error(worker):
    worker.beat(state="ERROR")


# end → strategy → (check that ends a running attempt, check that retires the server). A claimed attempt ends in the
# check that finds the server lost, under every strategy. The grace period of 100 s counts from the last transition.
# Except for a killed server, that is a moment after the interval of the first check began.
FOUND = {graceful: 1, forced: 1, forced_at_once: 1, error: 1, killed: 5, silent_while_terminating: 5}
EXPECTED = {
    graceful: {AFTER: (1, 2), AT_ONCE: (1, 2), NEVER: (None, 2)},
    forced: {AFTER: (11, 12), AT_ONCE: (1, 2), NEVER: (None, 2)},
    forced_at_once: {AFTER: (11, 12), AT_ONCE: (1, 2), NEVER: (None, 2)},
    error: {AFTER: (11, 12), AT_ONCE: (1, 2), NEVER: (None, 2)},
    killed: {AFTER: (16, 17), AT_ONCE: (5, 6), NEVER: (None, 6)},
    silent_while_terminating: {AFTER: (11, 12), AT_ONCE: (5, 6), NEVER: (None, 6)},
}
ENDS = {"RUNNING": "RESUBMITTED", "CLAIMED": "REQUEUED"}


@pytest.mark.parametrize("holds", ["nothing", "CLAIMED", "RUNNING"])
@pytest.mark.parametrize("strategy", [AFTER, AT_ONCE, NEVER])
@pytest.mark.parametrize("end", list(EXPECTED), ids=lambda end: end.__name__)
def test_each_end_takes_its_strategy(worker, submit, clock, end, strategy, holds):
    one = worker(config={"worker_task_restart_strategy": strategy, "termination_grace_period_seconds": GRACE})
    if holds != "nothing":
        submit()
        one.hold(running=holds == "RUNNING")
    end(one)

    ended, not_running, inactive = None, None, None
    for number in range(1, 20):
        clock.advance(INTERVAL)
        check_liveness()
        attempt, server = Attempt.objects.first(), Server.objects.get()
        if ended is None and attempt is not None and attempt.state not in ENDS:
            assert attempt.state == ENDS[holds]
            assert attempt.job.state == "PENDING"
            ended = number
        if not_running is None and server.state == "NOT_RUNNING":
            not_running = number
        if inactive is None and server.state == "INACTIVE":
            inactive = number
            break
    running_ends, retires = EXPECTED[end][strategy]
    if holds != "RUNNING":
        retires = FOUND[end] + 1  # without running code there is no grace period to wait for
    assert ended == {"nothing": None, "CLAIMED": FOUND[end], "RUNNING": running_ends}[holds]
    assert (not_running, inactive) == (retires, retires + 1)
    events = list(ServerEvent.objects.filter(server_id=one.id).values_list("from_state", "to_state"))
    assert all(came_from == was for (_, was), (came_from, _) in itertools.pairwise(events))
    assert events[-1] == ("NOT_RUNNING", "INACTIVE")


@pytest.mark.parametrize("holds", ["nothing", "CLAIMED", "RUNNING"])
@pytest.mark.parametrize("strategy", [AFTER, AT_ONCE, NEVER])
def test_a_disconnected_server_that_returns_may_only_finish_what_it_owns(worker, submit, clock, strategy, holds):
    one = worker(config={"worker_task_restart_strategy": strategy, "termination_grace_period_seconds": GRACE})
    attempt = None
    if holds != "nothing":
        submit()
        attempt = one.hold(running=holds == "RUNNING")
    clock.advance(TIMEOUT + 1)
    check_liveness()
    assert one.beat(state="RUNNING").json()["code"] == "server_disconnected"
    assert one.post(f"/servers/{one.id}/claims", {"limit": 1}).json()["code"] == "server_disconnected"
    assert one.beat(state="TERMINATING").json()["state"] == "TERMINATING"
    if holds == "RUNNING":
        accepted = one.complete(attempt)["accepted"]
        assert accepted is (strategy != AT_ONCE)
    if holds == "CLAIMED":
        assert one.start(attempt)["code"] == "attempt_superseded"
    assert one.beat(state="TERMINATED_GRACEFULLY").status_code == 200
    for _ in range(3):
        clock.advance(INTERVAL)
        check_liveness()
    assert Server.objects.get().state == "INACTIVE"
