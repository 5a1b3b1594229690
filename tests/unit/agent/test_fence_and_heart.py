"""Fencing and beats, one step at a time on a clock of ours."""

from __future__ import annotations

import pytest

from controlplane.agent.api.backoff import full_jitter
from controlplane.agent.api.client import AgentClient, Refused, Unreachable
from controlplane.agent.api.heartbeat_thread import HeartbeatThread, HeldAttempts
from controlplane.agent.api.registration import RegisteredServer as RegisteredServer
from controlplane.agent.api.registration import ServerConfig
from controlplane.agent.fence import Fence


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Server:
    """Answers with what `replies` does; a number is the seconds that the call takes."""

    id = "server"
    config = ServerConfig(3, 40, 300, 30, 30, "NEVER")

    def __init__(self, clock: Clock) -> None:
        self.clock, self.bodies, self.takes, self.problem, self.fence = clock, [], 0.0, None, 10.0

    def send_heartbeat(self, body):
        self.bodies.append(body)
        self.clock.now += self.takes
        if self.problem:
            raise self.problem
        return {"state": body["state"], "heartbeat_interval_seconds": 3, "fence_after_seconds": self.fence}


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def server(clock):
    return Server(clock)


@pytest.fixture
def heart(clock, server):
    events = []
    heart = HeartbeatThread(
        server,
        Fence(clock),
        list_held_attempts=lambda: HeldAttempts(["c"], [{"attempt": "r", "pid": 1}]),
        metrics=lambda: {},
        on_answer=events.append,
        on_fenced=lambda: events.append(f"fenced at {clock.now:g}"),
    )
    heart.events = events
    return heart


def test_the_fence_has_not_passed_just_before_its_time_and_has_at_it(clock):
    fence = Fence(clock)
    assert not fence.has_passed() and fence.remaining_seconds() is None
    fence.renew_deadline(started=1000, after=10)
    clock.now = 1009.99
    assert not fence.has_passed()
    clock.now = 1010
    assert fence.has_passed() and fence.remaining_seconds() == 0


def test_without_a_fence_nothing_ever_passes(clock):
    fence = Fence(clock)
    fence.renew_deadline(1000, 10)
    fence.renew_deadline(1001, None)
    clock.now = 1e9
    assert not fence.has_passed()


def test_a_shortened_fence_is_not_moved_on_by_an_answer_that_was_under_way(clock):
    fence = Fence(clock)
    fence.renew_deadline(1000, 300)
    fence.shorten_deadline(50)
    fence.renew_deadline(1001, 300)
    assert fence.deadline == 1050
    fence.renew_deadline(1002, 60, lifts=True)  # it knows that we are TERMINATING
    assert fence.deadline == 1062


@pytest.mark.parametrize(
    ("strategy", "timeout", "grace", "fence"),
    [
        ("IMMEDIATELY", 40, 300, 32),
        ("AFTER_TERMINATION_GRACE_PERIOD", 40, 300, 292),
        ("AFTER_TERMINATION_GRACE_PERIOD", 40, 10, 32),
        ("NEVER", 40, 300, None),
    ],
)
def test_a_terminating_server_has_no_more_than_the_shorter_fence(strategy, timeout, grace, fence):
    assert ServerConfig(3, timeout, grace, 30, 30, strategy).last_fence_seconds == fence


def test_only_the_answer_to_terminating_lifts_a_shortened_fence(heart, server, clock):
    heart.fence.shorten_deadline(5)
    heart.send_heartbeat()
    assert heart.fence.deadline == 1005
    heart.report_state("TERMINATING")
    heart.send_heartbeat()
    assert heart.fence.deadline == 1010


def test_each_heartbeat_lists_what_was_stopped_even_if_that_is_nothing(heart, server):
    heart.send_heartbeat()
    assert server.bodies[-1]["stopped"] == []


def test_the_fence_counts_from_the_start_of_the_answered_beat(heart, server, clock):
    server.takes = 4
    heart.send_heartbeat()
    assert heart.fence.deadline == 1010


def test_an_unanswered_or_refused_beat_does_not_move_the_fence(heart, server, clock):
    heart.send_heartbeat()
    for problem in (Unreachable("down"), Refused(409, "server_disconnected", "no")):
        clock.now += 1
        server.problem = problem
        heart.send_heartbeat()
    assert heart.fence.deadline == 1010
    assert heart.events[1:] == [problem]


def test_a_heart_that_wakes_past_the_fence_enforces_it_before_its_heartbeat(heart, server, clock):
    heart.send_heartbeat()
    clock.now = 5000  # SIGSTOP, SIGCONT
    server.problem = Unreachable("down")
    heart.send_heartbeat()
    assert heart.events[1:] == ["fenced at 5000"]


def test_an_answer_that_comes_past_the_fence_does_not_hide_it(heart, server, clock):
    heart.send_heartbeat()
    server.takes = 11
    heart.send_heartbeat()
    assert heart.events[1] == "fenced at 1011"
    assert heart.fence.deadline == 1010 and heart.fence.has_passed()  # 1000 + 10: that answer is too old to help


def test_holdings_are_listed_when_due_and_after_any_silence(heart, server, clock):
    def lists():
        heart.send_heartbeat()
        return "claimed" in server.bodies[-1], "running" in server.bodies[-1]

    assert lists() == (True, True)
    clock.now += 29.9
    assert lists() == (False, False)
    clock.now += 0.1
    assert lists() == (True, True)
    server.problem = Unreachable("down")
    lists()
    server.problem = None
    assert lists() == (True, True)


def test_the_next_beat_comes_an_interval_after_the_start_of_this_one(heart, server):
    server.takes = 1
    assert heart.send_heartbeat() == 2


def test_a_failed_heartbeat_is_retried_within_a_third_of_the_rest_of_the_timeout(heart, server):
    within = (40 - 3) / 3
    server.problem = Unreachable("busy", retry_after=3600)
    assert heart.send_heartbeat() == pytest.approx(within)
    server.takes = 9.25
    assert heart.send_heartbeat() == pytest.approx(within - 9.25)
    server.takes, server.problem = 0, Unreachable("down")
    assert all(0 <= heart.send_heartbeat() <= within for _ in range(50))


@pytest.mark.parametrize(
    ("timeout", "beat", "within"), [(40, 4, 9), (43, 3, 10), (3600, 3, 10), (2, 0.5, 0.375), (0.4, 0.1, 0.075)]
)
def test_a_beat_waits_for_its_answer_for_a_quarter_of_what_is_left_and_never_long(timeout, beat, within):
    assert ServerConfig(beat, timeout, 300, 30, 30, "NEVER").heartbeat_answer_timeout == pytest.approx(within)


def test_full_jitter_grows_from_its_base_to_its_cap():
    assert all(full_jitter(1, cap=10) <= 1 for _ in range(200))
    assert max(full_jitter(20, cap=10) for _ in range(200)) > 5
    assert all(full_jitter(2000, cap=10) <= 10 for _ in range(200))


@pytest.mark.parametrize(("patience", "within"), [(10, 9.25), (1.5, 1.5)])
def test_a_beat_waits_no_longer_than_its_timeout_allows_nor_than_any_other_call(monkeypatch, patience, within):
    asked = []
    monkeypatch.setattr(AgentClient, "post", lambda self, path, body, token, within: asked.append(within) or {})
    config = ServerConfig(3, 40, 300, 30, 30, "NEVER")
    RegisteredServer(AgentClient("http://nowhere", timeout=patience), "id", "token", config, None, 0).send_heartbeat({})
    assert asked == [within]


def test_a_beat_that_may_bring_its_server_back_lists_code_that_hangs_as_well(heart, server):
    heart._list_held_attempts = lambda: HeldAttempts([], [{"attempt": "r", "pid": 1}], [], [{"attempt": "s", "pid": 2}])
    heart.send_heartbeat()
    assert [item["attempt"] for item in server.bodies[-1]["running"]] == ["r"]
    heart._failures, heart._runner_due = 1, 0.0
    heart.send_heartbeat()
    assert [item["attempt"] for item in server.bodies[-1]["running"]] == ["r", "s"]
