"""The thread that carries reports and claims."""

import threading
import time
from types import SimpleNamespace

import pytest

from controlplane.agent.api.client import Unreachable
from controlplane.agent.api.outbox import Outbox
from controlplane.agent.api.transport import TransportThread

ASKED = 0.3


@pytest.mark.parametrize("status", [429, 503])
def test_it_comes_again_no_sooner_than_asked_though_heartbeats_are_answered(status):
    calls, ends = [], threading.Event()

    def post(call, body):
        calls.append(time.monotonic())
        if len(calls) == 1:
            raise Unreachable(f"{status}: busy", retry_after=ASKED)
        ends.set()
        return {"attempts": []}

    server = SimpleNamespace(post=post, config=SimpleNamespace(timeout=40))
    courier = TransportThread(server, Outbox(), poll=60, deliver=lambda end: None, refused=lambda: None)
    courier.request_slots(1)
    courier.start()
    while not ends.wait(0.005):
        courier.retry_now()
    courier.close()
    courier.join(10)
    assert calls[1] - calls[0] >= ASKED


def test_it_ends_at_once_though_it_was_asked_to_come_later():
    called = threading.Event()

    def post(call, body):
        called.set()
        raise Unreachable("503: busy", retry_after=3600)

    server = SimpleNamespace(post=post, config=SimpleNamespace(timeout=3600 * 4))
    courier = TransportThread(server, Outbox(), poll=60, deliver=lambda end: None, refused=lambda: None)
    courier.request_slots(1)
    courier.start()
    assert called.wait(10)
    courier.close()
    courier.join(10)
    assert not courier.is_alive()
