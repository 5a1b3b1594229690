"""Pool processes that die with a call: who gets the call, and who gets the blame."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from controlplane.agent.processes.child_process import ChildCommand, ChildExit
from controlplane.agent.processes.pool import DELIVERIES, Pool
from controlplane.agent.processes.pooled_call import PooledCall


class FakeProcess:
    def __init__(self, key: str) -> None:
        self.key, self.pid, self.was_killed = key, 1, False
        self.answers = self.feed = None


class Host:
    """A supervisor whose processes do nothing."""

    def __init__(self) -> None:
        self.processes: list[FakeProcess] = []

    def start_process(self, key: str, *_: Any) -> None:
        self.processes.append(FakeProcess(key))

    def get_child(self, key: str) -> Any:
        return next((one for one in self.processes if one.key == key), None)


@pytest.fixture
def host() -> Host:
    return Host()


@pytest.fixture
def pool(host: Host) -> Pool:
    pool = Pool(host, slots=1, most_calls=10)
    pool.begin(PooledCall("attempt", ChildCommand([], {}, b""), lambda *_: None))
    return pool


def die(pool: Pool, host: Host, begun: bytes = b"") -> list[ChildExit]:
    process = host.processes.pop()
    exit_of_it = ChildExit(process.key, process.pid, -signal.SIGKILL, b"", b"", result=begun)
    pool.record_end(process, exit_of_it)
    return pool.take_ended()


def test_a_process_that_dies_with_a_call_it_has_begun_ends_the_call(pool, host):
    [ended] = die(pool, host, begun=b"attempt\n")
    assert (ended.key, ended.status, ended.is_of_machine) == ("attempt", -signal.SIGKILL, False)


def test_a_call_that_is_never_begun_goes_to_a_few_processes_and_then_back(pool, host):
    for _ in range(DELIVERIES - 1):
        assert die(pool, host, begun=b"another\n") == []
        assert len(host.processes) == 1, "another one has the call"
    [ended] = die(pool, host)
    assert (ended.key, ended.is_of_machine) == ("attempt", True) and "before they began it" in ended.problem


def test_a_process_that_this_agent_has_killed_does_not_pass_its_call_on(pool, host):
    host.processes[0].was_killed = True
    [ended] = die(pool, host)
    assert ended.status == -signal.SIGKILL and host.processes == []
