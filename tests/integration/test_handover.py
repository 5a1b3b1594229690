"""Nothing runs in two places: whatever moved a job, its next attempt begins only when the one before has stopped."""

from itertools import count

import pytest
from hypothesis import HealthCheck, event, given, note, settings
from hypothesis import strategies as st

from jobs.models import Attempt, TakenAttempt
from jobs.services import sweep
from jobs.services.check import check
from liveness.models import Brake, Clock, Server, ServerEvent
from tests.integration.test_brake import silence

AFTER, AT_ONCE, NEVER = "AFTER_TERMINATION_GRACE_PERIOD", "IMMEDIATELY", "NEVER"
RUNNING_STALE, CANCEL = 300, 60


def pass_time(clock, seconds, *workers, **said):
    """Time passes in which these servers beat, each interval of the check a check."""
    while seconds > 0:
        clock.advance(min(10, seconds))
        seconds -= 10
        for one in workers:
            one.beat(**said)
        check()


# Item 1: a stale runner is one whose server was heard since


@pytest.mark.parametrize("why", ["the brake", "a longer timeout", "switched off"])
def test_the_runner_of_a_silent_server_is_never_stale_whatever_keeps_that_server_alive(
    worker, submit, clock, settings, why
):
    settings.LIVENESS = {"ENABLED": why != "switched off", "BRAKE_MAX_HOLD": 10_000}
    job = submit()
    config = {"timeout_seconds": 5000} if why == "a longer timeout" else {}
    one = worker(name="silent", config=config)
    one.hold()
    others = [worker(name=f"other-{n}") for n in range(5)]
    silent = others[3:] if why == "the brake" else []
    pass_time(clock, 800, *[other for other in others if other not in silent])
    assert sweep.sweep()["overdue"] == {}
    assert Server.objects.get(pk=one.id).state == "RUNNING"
    assert Brake.objects.exists() == (why == "the brake")
    assert submit.client.get(f"/jobs/{job['id']}").json()["state"] == "RUNNING"


def test_a_runner_is_stale_when_its_server_was_heard_since_for_so_long(worker, submit, clock):
    submit()
    one = worker()
    one.hold()
    pass_time(clock, RUNNING_STALE, one)
    one.beat()
    assert sweep.sweep()["overdue"] == {}
    clock.advance(5)
    assert sweep.sweep()["overdue"] == {}
    one.beat()
    assert sweep.sweep()["overdue"] == {"RESUBMITTED": 1}
