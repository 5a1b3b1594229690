"""Deaths of protected Celery workers on a real Redis: no message is lost, and no task runs twice at once.

Beside them is a stand-in control plane. Its timeout is long, except for workers whose silence a test waits for.
"""

import os
import signal
import time

import psutil
import pytest

from tests.support.celery_fleet import UNTIL_RELEASED, celery_fleet, ended, judged_soon, last_line, registered
from tests.support.celery_plane import LONG_TIMEOUT, TIMEOUT, CeleryPlane
from tests.support.processes import eventually

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(300)]


@pytest.mark.parametrize("pool", ["prefork", "threads", "solo"])
def test_tasks_of_a_killed_worker_run_elsewhere_within_seconds(fleet, plane, pool):
    fleet.worker("victim", pool=pool)
    fleet.ready("victim")
    names = ["running", "prefetched-1", "prefetched-2"]
    for name in names:
        fleet.send("work", name, UNTIL_RELEASED if name == "running" else 0.1, id=name)
    fleet.begun("running")
    eventually(lambda: fleet.unacked() == 3 or pool == "solo", why="the others are prefetched")
    registered(plane, "victim")
    fleet.worker("living", pool=pool)
    fleet.ready("living")
    killed_at = time.time()
    fleet.kill("victim")
    second = fleet.begun("running", 2)
    assert second.at - killed_at < LONG_TIMEOUT / 2, "long before any timeout"
    fleet.release("running")
    ended(fleet, *names)
    eventually(lambda: fleet.unacked() == 0, why="all is acknowledged")
    assert fleet.count("start") == {"running": 2, "prefetched-1": 1, "prefetched-2": 1}
    eventually(lambda: plane.server("victim@host")["state"] == "ERROR", why="it said so")
    eventually(lambda: "LOST" in plane.states_of("running"), why="the loss is recorded")


def test_the_next_worker_rescues_tasks_of_a_lost_host(fleet, plane):
    fleet.worker("victim")
    fleet.ready("victim")
    registered(plane, "victim")
    fleet.send("work", "running", UNTIL_RELEASED)
    first = fleet.begun("running")
    fleet.kill("victim", heart=True)
    died_at = time.time()
    plane.judge_soon("victim")
    stopped = last_line(fleet, "running", first.pid)
    fleet.worker("next")
    second = fleet.begun("running", 2)
    assert second.at > stopped
    assert second.at - died_at >= 2.0, "a verdict, and two seconds for what might still run"
    fleet.release("running")
    ended(fleet, "running")
    assert fleet.count("end") == {"running": 1}


def test_messages_of_a_worker_that_never_registered_return(fleet, plane):
    plane.down = True
    # Only the broker permits the tasks now. A slow machine may keep the hearts from asking it for some seconds.
    fleet.env["CONTROLPLANE_CELERY_CONDEMNED_FOR"] = "60"
    fleet.worker("victim")
    fleet.ready("victim")  # although nobody answers
    fleet.send("work", "running", UNTIL_RELEASED)
    fleet.begun("running")
    fleet.kill("victim")
    fleet.worker("living")
    fleet.begun("running", 2)
    fleet.release("running")
    ended(fleet, "running")


@pytest.mark.parametrize("pool", ["prefork", pytest.param("threads", marks=pytest.mark.exhaustive)])
def test_a_frozen_host_is_replaced_and_stops_at_once_when_it_wakes(fleet, plane, pool):
    fleet.worker("victim", pool=pool)
    fleet.ready("victim")
    registered(plane, "victim")
    fleet.worker("living", pool=pool)
    fleet.ready("living")
    registered(plane, "living")
    fleet.send("work", "blocker", 0)
    ended(fleet, "blocker")
    fleet.redis.delete("blocker")
    fleet.send("work", "running", UNTIL_RELEASED)
    first = fleet.begun("running")
    name, other = ("victim", "living") if group(fleet, "victim") == os.getpgid(first.pid) else ("living", "victim")
    judged_soon(plane, name)
    heart = fleet.heart_of(name)
    os.kill(heart, signal.SIGSTOP)
    fleet.kill(name, signal.SIGSTOP)
    second = fleet.begun("running", 2)
    assert os.getpgid(second.pid) == group(fleet, other)
    fleet.kill(name, signal.SIGCONT)
    os.kill(heart, signal.SIGCONT)
    assert fleet.processes[name].wait(120) != 0
    late = [entry for entry in fleet.entries() if entry.pid == first.pid and entry.at > second.at]
    assert len(late) <= 4, "the zombie stopped within the fence's look of 0.2 s"
    fleet.release("running")
    ended(fleet, "running")
    assert fleet.count("end") == {"blocker": 1, "running": 1}


def group(fleet, name):
    return fleet.processes[name].pid


def test_children_of_a_frozen_main_process_stop_before_the_task_runs_elsewhere(fleet, plane):
    fleet.worker("victim")
    fleet.ready("victim")
    registered(plane, "victim")
    fleet.send("work", "running", UNTIL_RELEASED)
    first = fleet.begun("running")
    fleet.worker("living")
    fleet.ready("living")
    judged_soon(plane, "victim")
    os.kill(fleet.processes["victim"].pid, signal.SIGSTOP)
    second = fleet.begun("running", 2)
    assert last_line(fleet, "running", first.pid) < second.at, "it ran in two places"
    assert not psutil.pid_exists(first.pid) or psutil.Process(first.pid).status() == psutil.STATUS_ZOMBIE


def test_no_task_is_killed_while_the_control_plane_is_away(fleet, plane):
    fleet.env["CONTROLPLANE_CELERY_CONDEMNED_FOR"] = "6"  # as long as a heart may fail to ask the broker
    fleet.worker("one")
    fleet.worker("two")
    fleet.ready("one", "two")
    registered(plane, "one", "two")
    judged_soon(plane, "one", "two")
    length = 4 * TIMEOUT  # longer than each of the two permissions without a new answer
    for name in ("a", "b"):
        fleet.send("work", name, length)
    fleet.begun("a")
    plane.down = True
    ended(fleet, "a", "b")
    assert fleet.count("start") == {"a": 1, "b": 1}
    assert all(process.poll() is None for process in fleet.processes.values())


def test_tasks_stop_while_control_plane_and_broker_are_away_and_run_again(fleet, plane, redis_server):
    fleet.worker("one")
    fleet.ready("one")
    registered(plane, "one")
    fleet.send("work", "running", UNTIL_RELEASED)
    first = fleet.begun("running")
    judged_soon(plane, "one")
    redis_server.server.send_signal(signal.SIGSTOP)
    try:
        plane.down = True
        assert fleet.processes["one"].wait(120) == -signal.SIGKILL
    finally:
        redis_server.server.send_signal(signal.SIGCONT)
    stopped = last_line(fleet, "running", first.pid)
    plane.down = False
    # Its heart outlives it, and returns the task once the broker is reachable again.
    eventually(lambda: fleet.redis.llen("orders") == 1, why="the task is back in its queue")
    assert last_line(fleet, "running", first.pid) == stopped


def test_a_heart_that_dies_is_replaced_while_its_worker_continues(fleet, plane):
    fleet.worker("one")
    fleet.ready("one")
    registered(plane, "one")
    fleet.send("work", "running", UNTIL_RELEASED)
    fleet.begun("running")
    heart = fleet.heart_of("one")
    os.kill(heart, signal.SIGKILL)
    died_at, known = time.monotonic(), plane.server("one@host")["beats"]
    eventually(lambda: "starting another" in fleet.log("one"), why="another heart")
    eventually(lambda: plane.server("one@host")["beats"] > known + 2, why="the same server beats on")
    assert time.monotonic() - died_at < LONG_TIMEOUT / 2, "long before any timeout"
    fleet.release("running")
    ended(fleet, "running")
    assert len(plane.servers) == 1 and fleet.count("start") == {"running": 1}


def test_the_next_heart_reports_ends_that_a_killed_heart_did_not_report(fleet, plane):
    """One task completes. The other kills its process, and is quarantined. Then the heart is killed."""
    fleet.env["CONTROLPLANE_CELERY_MAX_RESUBMISSIONS"] = "0"
    fleet.worker("one", concurrency=2)
    fleet.ready("one")
    registered(plane, "one")
    fleet.send("work", "running", UNTIL_RELEASED, id="running")
    eventually(lambda: "RUNNING" in plane.states_of("running"), why="it is recorded")
    plane.down = True
    fleet.release("running")
    poison = fleet.send("poison", False, id="poison")
    ended(fleet, "running")
    eventually(lambda: poison.state == "FAILURE" and fleet.unacked() == 0, why="both have ended")
    os.kill(fleet.heart_of("one"), signal.SIGKILL)
    eventually(lambda: "starting another" in fleet.log("one"), why="another heart")
    plane.down = False
    eventually(lambda: "COMPLETED" in plane.states_of("running"), why="the next heart reports it")
    eventually(lambda: "QUARANTINED" in plane.states_of("poison"), why="the next heart reports it, too")
    assert len({record["attempt"] for record in plane.tasks["running"]}) == 1
    assert any("running_seconds" in record for record in plane.tasks["poison"]), "it names the attempt that ran"


def test_a_process_that_a_task_started_ends_with_its_worker(fleet, plane):
    fleet.worker("victim")
    fleet.ready("victim")
    fleet.send("spawn", "running", 600)
    eventually(fleet.entries, why="it started one")
    child = int(fleet.entries()[0].what.removeprefix("child:"))
    fleet.kill("victim")
    eventually(lambda: not psutil.pid_exists(child) or psutil.Process(child).status() == "zombie", why="it ended, too")


def test_code_that_holds_the_interpreter_does_not_stop_the_heartbeats(fleet, plane):
    began, length = time.process_time(), 16
    import re

    while (took := time.process_time() - began) < 0.2:  # as long as it takes here to run for many heartbeats
        began = time.process_time()
        length += 1
        re.match(r"(a+)+$", "a" * length + "b")
    while took < 7.5:
        took, length = took * 2, length + 1
    fleet.worker("one", pool="threads")
    fleet.worker("two", pool="threads")
    fleet.ready("one", "two")
    registered(plane, "one", "two")
    fleet.send("hold_the_interpreter", "running", "a" * length + "b")
    fleet.begun("running")
    beats = {name: plane.beats_of(name) for name in ("one", "two")}
    ended(fleet, "running")
    assert all(plane.beats_of(name) > known + 2 for name, known in beats.items()), "both beat in the meantime"
    assert fleet.count("start") == {"running": 1}
    assert [server["state"] for server in plane.servers.values()] == ["RUNNING", "RUNNING"]


def test_an_older_control_plane_without_holders_is_supported(tmp_path, redis_server):
    plane = CeleryPlane(older=True)
    with celery_fleet(tmp_path, redis_server.url, plane.url) as fleet:
        fleet.redis.flushall()
        fleet.worker("victim")
        fleet.worker("living")
        fleet.ready("victim", "living")
        registered(plane, "victim", "living")
        fleet.send("work", "running", UNTIL_RELEASED)
        first = fleet.begun("running")
        fleet.kill("victim" if os.getpgid(first.pid) == group(fleet, "victim") else "living")
        fleet.begun("running", 2)
        fleet.release("running")
        ended(fleet, "running")
    plane.close()
