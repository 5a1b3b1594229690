"""Outages of the web tier in all phases, with the smallest allowed timeouts.

The real heartbeat thread gets a response again before its silence counts too long, whenever the outage begins and ends.
"""

from __future__ import annotations

import itertools
from unittest.mock import Mock

import pytest

from controlplane.agent.api import heartbeat_thread
from controlplane.agent.api.client import Unreachable
from controlplane.agent.api.heartbeat_thread import HeartbeatThread, HeldAttempts
from controlplane.agent.api.registration import ServerConfig
from controlplane.agent.fence import Fence
from liveness.conf import timeout_problems, witness_window

# Heartbeat interval, check interval; the timeout is the smallest, or a little more.
INTERVALS = [
    (0.1, 0.1), (0.5, 0.5), (3, 10), (3, 1), (2, 60), (20, 5), (20, 9), (20, 10), (20, 2), (300, 60),
]  # fmt: skip
MORE = [1, 1.2, 2]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Swallowing:
    """A server's calls: answered at once, but from `begins` to `ends` they get no answer at all."""

    id = "server"

    def __init__(self, clock, config, begins, ends):
        self.clock, self.config, self.begins, self.ends, self.beat_times = clock, config, begins, ends, []

    def send_heartbeat(self, body):
        if self.begins <= self.clock.now < self.ends:
            self.clock.now += self.config.heartbeat_answer_timeout
            raise Unreachable("no answer")
        self.beat_times.append(self.clock.now)
        return {}


def beats(config, begins, ends, until):
    """Return the times at which heartbeats of the real thread are answered, from 0 on."""
    clock = Clock()
    server = Swallowing(clock, config, begins, ends)
    heart = HeartbeatThread(
        server, Fence(clock), list_held_attempts=HeldAttempts, metrics=dict, on_answer=lambda answer: None,
        on_fenced=lambda: None
    )  # fmt: skip
    while clock.now < until:
        pause = heart.send_heartbeat()  # moves the clock as well
        clock.now += pause
    return server.beat_times


def silences(beat_times, witnessed, first_check, interval, window, until):
    """Yield the silence that each check counts: observed time as in `advance_clock` and observed_now()."""
    reading = advanced = heard_observed = 0.0
    was_witnessed, beat_times, witnessed = True, list(beat_times), list(witnessed)
    last_witness = -window
    at = first_check
    while at < until:
        while beat_times and beat_times[0] <= at:
            heard_observed = max(heard_observed, reading + min(beat_times.pop(0) - advanced, 1.5 * interval))
        while witnessed and witnessed[0] <= at:
            last_witness = witnessed.pop(0)
        is_witnessed = last_witness > at - window
        if is_witnessed and was_witnessed:
            reading += min(at - advanced, 1.5 * interval)
        was_witnessed, advanced = is_witnessed, at
        yield reading - heard_observed
        at += interval


@pytest.mark.exhaustive
@pytest.mark.parametrize(("beat", "check"), INTERVALS)
@pytest.mark.parametrize("more", MORE)
@pytest.mark.parametrize("jitter", [0, 0.5, 1])
def test_the_next_answered_beat_comes_within_the_timeout_whatever_the_phase(
    monkeypatch, settings, beat, check, more, jitter
):
    timeout = more * max(2 * beat, beat + 2 * check)
    assert timeout_problems(timeout=timeout, heartbeat_interval=beat, interval=check) == []
    monkeypatch.setattr(heartbeat_thread, "full_jitter", lambda failures, cap: cap * jitter)
    monkeypatch.setattr(heartbeat_thread, "log", Mock())
    settings.LIVENESS = {"TIMEOUT": timeout, "HEARTBEAT_INTERVAL": beat, "INTERVAL": check}
    config, window = ServerConfig(beat, timeout, 0, 30, 30, "NEVER"), witness_window()
    lasts = [timeout * eighth / 8 for eighth in range(1, 12)] + [window + check, 3 * timeout]
    worst = 0.0
    for last, phase in itertools.product(lasts, range(4)):
        # The last beat before it is at 0, the first that it swallows at an interval: it begins somewhere between.
        begins = beat * (phase + 0.01) / 4
        ends = begins + last
        until = ends + 1.5 * timeout
        beat_times = beats(config, begins, ends, until)
        # The worst for us: that heartbeats get in was seen just before, and is again just after.
        step = min(beat, window / 2)
        witnessed = [begins, *(ends + step * number for number in range(int(1.5 * timeout / step) + 1))]
        for of_check in range(4):
            checks = silences(beat_times, witnessed, check * (of_check + 0.5) / 4, check, window, until)
            worst = max(worst, *checks)
    assert worst <= timeout
