"""The watch on the broker: slow replies, and the own worker among the lost ones."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from kombu import Connection

from controlplane.agent.celery.heart import broker_watch, redis_watch, rescue
from controlplane.agent.celery.heart.fence import TwoWitnesses
from controlplane.agent.celery.heart.redis_watch import RedisWatch
from controlplane.agent.celery.heart.task_records import TaskRecords
from controlplane.agent.celery.messages import Greeting, LoopProgress, TaskHeld, TaskRunning

CONDEMNED_FOR = 2.0
ANSWER_TOOK = 5.0
TAGS = ("early", "late", "waiting")


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Worker:
    """The heart process, as the watch sees it. It records when the fence was enforced."""

    instance = "me"

    def __init__(self, clock: Clock, fence: TwoWitnesses) -> None:
        self.clock, self.fence = clock, fence
        self.enforced: list[tuple[float, bool]] = []

    def enforce_fence(self) -> None:
        self.enforced.append((self.clock.now, self.fence.has_passed()))

    def main_is_stopped(self) -> bool:
        return False

    def stop_code(self, reason: str) -> None:
        raise AssertionError(reason)

    def progress(self) -> tuple[LoopProgress, float]:
        return LoopProgress(received=1, takes=False), 0.0


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    for module in (redis_watch, broker_watch, rescue):
        monkeypatch.setattr(module, "read_uptime", clock)
    return clock


@pytest.fixture
def watched(clock, redis_server, monkeypatch):
    """Return a watch whose broker replies after five seconds, its worker, and its deadlines."""
    deadlines: list[float | None] = []
    fence = TwoWitnesses(CONDEMNED_FOR, deadlines.append, clock)
    fence.renew_deadline(clock.now, 1.0)
    greeting = Greeting(
        instance="me", kind="redis", connection=Connection(redis_server.url), exchanges={}, visibility_timeout=None,
        broker_heartbeat=0, url="http://plane", token="t", name="w@host", own_queue=None, folder=None, every=60,
        record="notable", max_resubmissions=3, condemned_for=CONDEMNED_FOR, stuck_after=60, when_stuck="flag",
        description={},
    )  # fmt: skip
    worker = Worker(clock, fence)
    watch = RedisWatch(greeting, fence, SimpleNamespace(), worker)
    watch._next_turn = clock.now + 60

    def slow(instance):
        clock.now += ANSWER_TOOK
        return False

    monkeypatch.setattr(watch._unacked, "is_condemned", slow)
    return watch, worker, deadlines


def test_the_fence_is_enforced_again_after_a_slow_reply_of_the_broker(watched, clock):
    watch, worker, _ = watched
    watch.look()
    assert worker.enforced == [(1000 + ANSWER_TOOK, True)], "before the answer moves it on"


def test_a_reply_of_the_broker_counts_from_the_time_of_the_question(watched, clock):
    watch, _, deadlines = watched
    watch.look()
    assert deadlines[-1] == 1000 + CONDEMNED_FOR, "not two seconds after the answer"


def test_a_running_task_with_acks_late_false_fails_with_its_worker(watched):
    watch, *_ = watched
    watch._records = records = TaskRecords()
    early, late, waiting = (TaskHeld(tag, tag, "work", "orders", acks_late=tag == "late") for tag in TAGS)
    for message in early, late, waiting._replace(is_known=True), TaskRunning("early", 7), TaskRunning("late", 8):
        records.read(message)
    watch._end_rest({"early", "late"}, "ERROR")
    states = {task["id"]: task["state"] for task in records.next_batch()["tasks"]}
    assert states == {"early": "FAILED", "late": "LOST"}, "the broker still has the message of the waiting one"


def test_a_worker_never_rescues_its_own_messages(clock):
    own = rescue.Rescue("me", SimpleNamespace(), CONDEMNED_FOR, 3, clock)
    own.record_answer({"forsaken": ["me", "dead"], "unknown": ["me"]}, 1.0)
    clock.now += 2
    assert own.lost() == {"dead"}
