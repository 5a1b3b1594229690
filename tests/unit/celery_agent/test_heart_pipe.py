"""The pipe to the heart: nothing is lost if the heart is slow, and the next heart gets what its predecessor knew."""

from __future__ import annotations

import os
import subprocess
import time
from types import SimpleNamespace

import pytest
from kombu import Connection

from controlplane.agent.celery.heart.task_records import TaskRecords
from controlplane.agent.celery.messages import (
    Greeting,
    MessagesDropped,
    TaskEnded,
    TaskHeld,
    TaskRunning,
    WorkerEnding,
    WorkerStopping,
    decode,
)
from controlplane.agent.celery.worker import heart_pipe, kept_ends
from controlplane.agent.celery.worker.heart_pipe import HeartPipe
from controlplane.agent.celery.worker.kept_ends import KeptEnds
from tests.support.standin import eventually

HELD = TaskHeld("1", "id-1", "work", "orders", attempt="attempt-1")
FAILED = TaskEnded("1", "FAILED", 0.1, "ValueError: no such order")


class Heart:
    """A heart that reads its pipe only when the test calls `read`."""

    def __init__(self, command, stdin, stdout, **options):
        self.stdin, self.returncode, self.pending = os.dup(stdin), None, b""
        os.set_blocking(self.stdin, False)

    def poll(self):
        return self.returncode

    def wait(self, within):
        return self.returncode

    def read(self):
        try:
            while data := os.read(self.stdin, 65536):
                self.pending += data
        except BlockingIOError:
            pass
        *lines, self.pending = self.pending.split(b"\n")
        return [decode(line) for line in lines if line.startswith(b"[")]  # the greeting is no list


@pytest.fixture
def hearts(monkeypatch):
    hearts: list[Heart] = []

    def start(*arguments, **options):
        hearts.append(Heart(*arguments, **options))
        return hearts[-1]

    stand_in = SimpleNamespace(Popen=start, TimeoutExpired=subprocess.TimeoutExpired)
    monkeypatch.setattr(heart_pipe, "subprocess", stand_in)
    yield hearts
    for heart in hearts:
        os.close(heart.stdin)


@pytest.fixture
def ends():
    return KeptEnds("notable")


@pytest.fixture
def pipe(hearts, ends):
    greeting = Greeting(
        instance="me", kind="redis", connection=Connection("memory://"), exchanges={}, visibility_timeout=None,
        broker_heartbeat=0, url="http://plane", token="t", name="w@host", own_queue=None, folder=None, every=60,
        record="notable", max_resubmissions=3, condemned_for=2, stuck_after=60, when_stuck="flag", description={},
    )  # fmt: skip
    pipe = HeartPipe(greeting, ends.list_messages)
    pipe.keep_running()
    yield pipe
    pipe._close()


def keep(ends, held=HELD, end=FAILED, age=0.0):
    return ends.keep(held, end, time.monotonic() - age, has_started=True)


def test_messages_wait_for_a_slow_heart_and_arrive_in_their_order(pipe, hearts):
    sent = [TaskRunning(str(nth), nth) for nth in range(5000)]
    for message in sent:
        pipe.send(message)
    arrived = []
    for _ in range(20):
        arrived += hearts[0].read()
        pipe.keep_running()
    assert arrived == sent


def test_after_too_many_messages_the_heart_gets_all_tasks_again(pipe, hearts, ends, monkeypatch):
    monkeypatch.setattr(heart_pipe, "WAITING", 10)
    end = keep(ends)
    for nth in range(5000):
        pipe.send(TaskRunning(str(nth), nth))
    pipe.keep_running()  # the heart does not read yet
    arrived = hearts[0].read()
    pipe.keep_running()
    arrived += hearts[0].read()
    dropped, held, *rest = arrived[-4:]
    assert (dropped, held.attempt, rest) == (MessagesDropped(), "attempt-1", [TaskRunning("1", None), end])
    pipe.send(TaskRunning("2", 2))
    assert hearts[0].read() == [TaskRunning("2", 2)]


def test_a_worker_that_ends_reports_that_messages_were_dropped(pipe, hearts, monkeypatch):
    monkeypatch.setattr(heart_pipe, "WAITING", 10)
    for number in range(100_000):
        pipe.send(TaskRunning(str(number), 1))
        if pipe._has_dropped:
            break
    hearts[0].read()
    hearts[0].wait = lambda _: None
    pipe.end("TERMINATED", 1)
    assert hearts[0].read()[-2:] == [MessagesDropped(), WorkerEnding("TERMINATED")]


def test_a_heart_that_replaces_another_during_the_end_of_its_worker_gets_the_end(pipe, hearts):
    pipe.report_end(WorkerStopping())
    hearts[0].returncode = -9
    assert pipe.keep_running()
    assert hearts[1].read() == [WorkerStopping()]
    hearts[1].returncode = -9
    pipe.end("TERMINATED", 1)
    assert not pipe.keep_running() and len(hearts) == 2


def test_a_heart_that_cannot_be_started_during_a_shutdown_is_tried_again(pipe, hearts, monkeypatch):
    monkeypatch.setattr(heart_pipe, "TICK", 0.01)
    start = heart_pipe.subprocess.Popen

    def fail_once(*arguments, **options):
        heart_pipe.subprocess.Popen = start
        raise OSError("Cannot allocate memory")

    heart_pipe.subprocess.Popen = fail_once
    hearts[0].returncode = -9
    pipe.keep_running_until_end()
    eventually(lambda: len(hearts) == 2, "another heart begins")
    pipe.end("TERMINATED", 1)


def test_the_next_heart_reports_a_kept_end_and_the_worker_forgets_it(pipe, hearts, ends):
    pipe.send(HELD)
    hearts[0].returncode = -9
    pipe.send(keep(ends, age=60))
    pipe.keep_running()
    records = TaskRecords()
    for message in hearts[1].read():
        records.read(message)
    (task,) = records.next_batch()["tasks"]
    assert (task["attempt"], task["state"], task["error"]["code"]) == ("attempt-1", "FAILED", "ValueError")
    assert task["held_seconds"] >= 60, "the control plane orders deliveries by their ages"
    records.confirm()
    ends.forget(records.take_known_ends())
    assert ends.list_messages() == []


def test_a_message_that_returns_to_the_same_worker_has_the_same_tag_on_redis(ends):
    again = HELD._replace(attempt="attempt-2", is_known=True)
    keep(ends, end=TaskEnded("1", "LOST", 0.1, "WORKER_CRASHED: signal 9"))
    second = keep(ends, again, TaskEnded("1", "COMPLETED"))
    records = TaskRecords()
    for message in ends.list_messages():
        records.read(message)
    tasks = records.next_batch()["tasks"]
    assert [(task["attempt"], task["state"]) for task in tasks] == [("attempt-1", "LOST"), ("attempt-2", "COMPLETED")]
    ends.forget(["attempt-1"])
    assert ends.list_messages()[-1] == second, "it is not reported yet"


def test_only_ends_that_the_control_plane_must_learn_are_kept(ends):
    completed, after = FAILED._replace(outcome="COMPLETED"), kept_ends.KEPT_AFTER
    assert not keep(ends, end=completed).kept_attempt
    assert keep(ends, end=completed, age=after).kept_attempt, "a heart may have reported it as running"
    assert keep(ends, HELD._replace(is_known=True), completed).kept_attempt
    assert keep(KeptEnds("everything"), end=completed).kept_attempt
    assert not keep(KeptEnds("servers"), age=after).kept_attempt


def test_the_latest_ends_are_kept_if_there_are_too_many(ends, monkeypatch):
    monkeypatch.setattr(kept_ends, "KEPT", 2)
    for tag in "123":
        keep(ends, HELD._replace(tag=tag, attempt=tag), FAILED._replace(tag=tag))
    assert [message.tag for message in ends.list_messages() if isinstance(message, TaskEnded)] == ["2", "3"]


def test_the_final_state_follows_messages_that_wait(pipe, hearts, monkeypatch):
    for nth in range(2000):
        pipe.send(TaskRunning(str(nth), nth))
    arrived = []
    monkeypatch.setattr(heart_pipe.time, "sleep", lambda seconds: arrived.extend(hearts[0].read()))
    pipe.end("ERROR", within=60)
    arrived += hearts[0].read()
    assert len(arrived) == 2001 and arrived[-1] == WorkerEnding("ERROR")
