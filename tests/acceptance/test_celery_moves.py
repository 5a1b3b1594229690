"""Protected Celery workers are killed and frozen while messages are on their way to them. None is lost.

Plain producers and a plain worker use the same queues on the same Redis.
"""

import itertools
import os
import random
import signal
import time
from collections import deque

import pytest

from tests.support.celery_fleet import UNTIL_RELEASED, ended, registered
from tests.support.processes import eventually

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(300)]
QUEUES = ("orders", "letters")
PRIORITIES = (0, 3, 6, 9)


def start(fleet, *names, **options):
    for name in names:
        fleet.worker(name, "-Q", ",".join(QUEUES), **options)


def commands(fleet):
    """Return the number of commands that Redis has executed, without this one."""
    return sum(stats["calls"] for name, stats in fleet.redis.info("commandstats").items() if name != "cmdstat_info")


# All pools have the same consumer.
@pytest.mark.parametrize(
    "pool", ["prefork", *(pytest.param(pool, marks=pytest.mark.exhaustive) for pool in ("threads", "solo"))]
)
def test_a_frozen_idle_worker_that_is_killed_loses_no_message(fleet, plane, pool):
    start(fleet, "victim", "other", pool=pool)
    fleet.ready("victim", "other")
    time.sleep(1.5)  # both wait for messages
    for name in ("victim", "other"):
        fleet.kill(name, signal.SIGSTOP)
    names = [f"{queue}-{priority}" for queue in QUEUES for priority in PRIORITIES]
    for name in names:
        queue, priority = name.split("-")
        fleet.send("work", name, queue=queue, priority=int(priority))
    time.sleep(0.3)  # the other may not help: what Redis gave away now is with a process that does not run
    fleet.kill("victim")
    fleet.kill("other", signal.SIGCONT)
    ended(fleet, *names)
    assert fleet.count("end") == dict.fromkeys(names, 1)
    eventually(lambda: fleet.unacked() == 0, why="all are acknowledged")


@pytest.mark.parametrize("faults", [4, pytest.param(16, marks=pytest.mark.exhaustive)])
def test_a_flow_of_tasks_survives_kills_and_freezes_at_any_moment(fleet, plane, faults):
    chance = random.Random(31)
    living = deque(["one", "two"])
    start(fleet, "plain", PROTECTED="0")
    start(fleet, *living)
    fleet.ready("plain")
    names = [f"task-{n}" for n in range(50 * faults)]
    waiting = iter(names)
    for fault in range(faults):
        victim = living.popleft()
        fleet.ready(victim)
        registered(plane, victim)
        for name in itertools.islice(waiting, 50):
            fleet.send("work", name, queue=chance.choice(QUEUES), priority=chance.choice(PRIORITIES))
            time.sleep(chance.uniform(0, 0.01))
        if fault % 2:
            fleet.kill(victim, signal.SIGSTOP)
            time.sleep(chance.uniform(0, 0.5))
        if fault % 4 == 3:
            fleet.kill(victim, signal.SIGCONT)
            living.append(victim)
        else:
            fleet.kill(victim, heart=fault % 4 == 2)
            if fault % 4 == 2:
                plane.judge_soon(victim)
            living.append(f"next-{fault}")
            start(fleet, living[-1])
    ended(fleet, *names)
    assert all(fleet.count("end")[name] >= 1 for name in names)
    eventually(lambda: fleet.unacked() == 0, why="all are acknowledged")


def test_a_frozen_idle_worker_takes_messages_again_when_it_wakes(fleet, plane):
    start(fleet, "one")
    fleet.ready("one")
    registered(plane, "one")
    fleet.kill("one", signal.SIGSTOP)
    fleet.send("work", "meanwhile")
    time.sleep(0.5)
    assert fleet.redis.llen("orders") == 1, "it took nothing"
    fleet.kill("one", signal.SIGCONT)
    ended(fleet, "meanwhile")


def test_a_worker_continues_after_redis_closes_its_connections(fleet, plane):
    start(fleet, "one")
    fleet.ready("one")
    names = [f"task-{n}" for n in range(60)]
    for number, name in enumerate(names):
        fleet.send("work", name)
        if number % 20 == 10:
            fleet.redis.client_kill_filter(_type="normal", skipme=True)
    ended(fleet, *names)
    assert fleet.processes["one"].poll() is None


def test_an_idle_worker_gets_messages_before_a_busy_one(fleet, plane):
    # Long enough for an idle worker that a slow machine lets run late.
    start(fleet, "one", "two", concurrency=2, YIELD="30")
    fleet.ready("one", "two")
    time.sleep(1.5)
    names = ["a", "b", "c", "d"]
    for name in names:
        fleet.send("work", name, UNTIL_RELEASED)
        fleet.begun(name)
        time.sleep(0.3)  # those that were busy have asked, and wait again
    assert len({entry.pid for entry in fleet.entries("start")}) == 4
    fleet.release(*names)
    ended(fleet, *names)


def test_a_task_costs_redis_no_more_commands_than_without_protection(fleet, plane):
    spent = {}
    for is_protected in (False, True):
        fleet.redis.flushall()
        name = f"protected-{is_protected}"
        start(fleet, name, PROTECTED=str(int(is_protected)), ACKS_LATE="1", BACKEND="")
        fleet.ready(name)
        time.sleep(1.0)
        before, held = commands(fleet), "unacked:*" if is_protected else "unacked"
        for _ in range(300):
            fleet.send("nothing", ignore_result=True)
        for _ in range(60):  # one by one, each time it waits
            fleet.send("nothing", ignore_result=True)
            time.sleep(0.02)
        # Read from the log, because each look into Redis would be one more command.
        eventually(lambda name=name: fleet.log(name).count(" succeeded in ") == 360, why="all have ended")
        time.sleep(1.0)
        spent[is_protected] = commands(fleet) - before
        eventually(
            lambda held=held: not any(fleet.redis.hlen(key) for key in fleet.redis.scan_iter(held)),
            why="all are acknowledged",
        )
        os.kill(fleet.processes[name].pid, signal.SIGTERM)
        fleet.processes[name].wait(40)
        eventually(lambda: not fleet.redis.keys("unacked*"), why="nothing stays of it")
    assert spent[True] <= 1.1 * spent[False], spent
