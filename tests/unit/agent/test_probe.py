"""A machine that is not fit for work gets none. A command or a function decides that regularly."""

from __future__ import annotations

import pytest

from controlplane.agent.fitness.probe import PASSED
from controlplane.agent.fitness.self_cordon import SelfCordon
from tests.support.standin import alive, eventually


def reported_cordons(plane):
    """Return the self-cordons in the heartbeats, without repetitions."""
    with plane.lock:
        beats = [body for call, body in plane.calls if call == "heartbeat"]
    each = [(body.get("schedulable"), body.get("reason", "")) for body in beats]
    return [one for n, one in enumerate(each) if n == 0 or each[n - 1] != one]


FAILED = "the probe failed: it ended with status 3: no disk"


def test_while_the_probe_fails_the_worker_is_cordoned_with_its_last_line(plane, agent, tmp_path):
    broken = tmp_path / "broken"
    agent("--probe", f"echo looking; if [ -e {broken} ]; then echo no disk >&2; exit 3; fi", "--probe-interval", "0.2")
    before = plane.submit("true")
    eventually(lambda: plane.final(before))
    broken.touch()
    eventually(lambda: reported_cordons(plane)[-1:] == [(False, FAILED)])
    beats = plane.count("heartbeat")
    eventually(lambda: plane.count("heartbeat") > beats + 1)  # a claim that was on its way has its answer
    while_it_fails, claims = plane.submit("true"), plane.count("claims")
    beats = plane.count("heartbeat")
    eventually(lambda: plane.count("heartbeat") > beats + 3)
    assert not plane.events(while_it_fails)
    assert plane.count("claims") <= claims + 1  # one may have been on its way
    broken.unlink()
    eventually(lambda: plane.final(while_it_fails))
    eventually(lambda: reported_cordons(plane)[-1:] == [(None, "")])
    assert reported_cordons(plane) == [(None, ""), (False, FAILED), (True, PASSED), (None, "")]


FUNCTIONS = """
import os

def raises():
    if os.path.exists({broken!r}):
        raise OSError("no disk")

async def returns():
    return not os.path.exists({broken!r})
"""


@pytest.mark.parametrize(("function", "why"), [("raises", "OSError: no disk"), ("returns", "it returned False")])
def test_a_probe_may_be_a_function_of_a_module_that_raises_or_returns_false(plane, agent, tmp_path, function, why):
    broken = tmp_path / "broken"
    (tmp_path / "machine.py").write_text(FUNCTIONS.format(broken=str(broken)))
    agent("--probe", f"machine:{function}", "--probe-interval", "0.2", "--probe-timeout", "60")
    attempt = plane.submit("true")
    eventually(lambda: plane.final(attempt))
    broken.touch()
    eventually(lambda: reported_cordons(plane)[-1:] == [(False, f"the probe failed: it ended with status 1: {why}")])
    broken.unlink()
    eventually(lambda: reported_cordons(plane)[-1:] == [(None, "")])
    assert (True, PASSED) in reported_cordons(plane)


def test_a_function_that_cannot_be_found_is_a_probe_that_fails(plane, agent):
    agent("--probe", "nowhere:probe", "--probe-timeout", "60")
    why = "it ended with status 1: ModuleNotFoundError: No module named 'nowhere'"
    eventually(lambda: reported_cordons(plane)[-1:] == [(False, f"the probe failed: {why}")])
    assert plane.count("claims") == 0


def test_nothing_is_claimed_before_the_first_probe_has_passed(plane, agent, tmp_path):
    go = tmp_path / "go"
    agent("--probe", f"until [ -e {go} ]; do sleep 0.02; done", "--probe-timeout", "60")
    attempt = plane.submit("true")
    eventually(lambda: plane.count("heartbeat") > 3)
    assert plane.count("claims") == 0
    go.touch()
    assert eventually(lambda: plane.final(attempt))["event"] == "COMPLETED"


def test_a_probe_that_hangs_has_failed_and_is_ended(plane, agent, tmp_path):
    pid = tmp_path / "pid"
    agent("--probe", f"echo $$ > {pid}; exec sleep 1000", "--probe-interval", "0.2", "--probe-timeout", "0.3")
    eventually(lambda: reported_cordons(plane)[-1:] == [(False, "the probe failed: it took longer than 0.3 s")])
    first = int(pid.read_text())
    eventually(lambda: not alive(first) or int(pid.read_text()) != first)


def test_running_jobs_continue(plane, agent, tmp_path):
    broken, go = tmp_path / "broken", tmp_path / "go"
    agent("--probe", f"[ ! -e {broken} ]", "--probe-interval", "0.2")
    attempt = plane.submit(f"while [ ! -e {go} ]; do sleep 0.02; done")
    eventually(lambda: "STARTED" in plane.events(attempt))
    broken.touch()
    eventually(lambda: reported_cordons(plane)[-1:] == [(False, "the probe failed: it ended with status 1")])
    go.touch()
    assert eventually(lambda: plane.final(attempt))["event"] == "COMPLETED"


def test_an_ending_agent_waits_for_no_probe(plane, agent):
    worker = agent("--probe", "sleep 1000", "--probe-timeout", "1000")
    eventually(lambda: plane.count("heartbeat") > 1)
    worker.process.terminate()
    assert worker.exits() == 0


@pytest.mark.parametrize(
    ("interval", "why"), [("0", "--probe-interval is 0 s but must be more than 0"), ("-1", "is not a duration")]
)
def test_an_interval_is_more_than_nothing(plane, agent, interval, why):
    worker = agent("--probe", "true", "--probe-interval", interval)
    assert worker.exits() == 2
    assert why in worker.log


def test_a_lifted_cordon_is_sent_until_a_heartbeat_was_answered():
    cordon = SelfCordon()
    cordon.lift("well")
    assert cordon.fields == {}
    cordon.cordon("ill")
    reported = cordon.fields
    cordon.record_answer(reported)
    assert cordon.fields == reported == {"schedulable": False, "reason": "ill"}
    cordon.lift("well")
    cordon.record_answer(reported)  # the response to the heartbeat before
    assert cordon.fields == {"schedulable": True, "reason": "well"}
    cordon.record_answer(cordon.fields)
    assert cordon.fields == {}
