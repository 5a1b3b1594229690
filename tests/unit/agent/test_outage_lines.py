"""Log lines of an agent at the start and at the end of an outage of the control plane."""

from __future__ import annotations

import pytest
import structlog.testing

from controlplane.agent.api.client import Refused, Unreachable
from controlplane.agent.api.outage import GIVEN_UP, Outage
from tests.support.standin import eventually

BEGIN, END = "Control plane unreachable", "Control plane answers again"


def lines(text):
    return [event for line in text.splitlines() if "[warning" in line for event in (BEGIN, END) if event in line]


def test_an_outage_is_two_lines_however_often_an_agent_retries(plane, agent):
    worker = agent()
    job = plane.submit("true")
    eventually(lambda: plane.final(job))
    for outage in (1, 2):
        plane.down = True
        tried = worker.log.count(BEGIN)
        eventually(lambda tried=tried: worker.log.count(BEGIN) > tried + 6, "it tries again and again")
        plane.down = False
        eventually(lambda outage=outage: lines(worker.log) == [BEGIN, END] * outage, "two lines each")


def test_an_agent_that_starts_during_an_outage_logs_it_once(plane, agent):
    plane.down = True
    worker = agent()
    eventually(lambda: worker.log.count(BEGIN) > 2)
    plane.down = False
    eventually(lambda: plane.registrations)
    eventually(lambda: lines(worker.log) == [BEGIN, END])


@pytest.fixture
def said():
    with structlog.testing.capture_logs() as entries:
        yield lambda: [entry["event"] for entry in entries if entry["log_level"] == "warning"]


def test_it_is_over_when_all_calls_are_answered_again_or_are_made_no_more(said):
    now = [0.0]
    outage = Outage("http://plane", lambda: now[0])
    for call in ("reports", "heartbeat"):
        with pytest.raises(Unreachable), outage.watching(call):
            raise Unreachable("down")
    outage.record_answer("heartbeat")
    assert said() == [BEGIN], "it is too busy for reports"
    with pytest.raises(Refused), outage.watching("reports"):
        raise Refused(409, "not_yours", "no")
    assert said() == [BEGIN, END], "a refusal is an answer"
    outage.record_miss("claims", "down")
    now[0] += GIVEN_UP
    outage.record_answer("heartbeat")
    assert said() == [BEGIN, END] * 2
