"""Tasks of every kind on protected workers and a real Redis, while workers, connections and the broker fail."""

import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from celery import chain, chord, signature

from tests.support.celery_fleet import UNTIL_RELEASED, ended, registered
from tests.support.processes import ROOT, eventually
from tests.support.services import Redis

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def redis_server(tmp_path_factory):
    with Redis(tmp_path_factory.mktemp("redis"), is_durable=True) as server:
        yield server


def work(*arguments, **options):
    return signature("tests.support.celery_app.work", arguments, app=options.pop("app"), immutable=True, **options)


def test_a_worker_registers_its_description_without_the_password_of_the_broker(fleet, plane):
    fleet.worker("one", "-Q", "orders,letters", concurrency=2)
    fleet.ready("one")
    registered(plane, "one")
    server = plane.server("one@host")
    assert (server["type"], server["max_concurrent"]) == ("WORKER", 2)
    assert server["tags"] == ["celery", "celery:orders", "queue:letters", "queue:orders"]
    assert server["pid"] == fleet.processes["one"].pid
    assert server["capabilities"]["pool"] == "prefork"
    assert server["capabilities"]["unprotected"] == ["tests.support.celery_app.once"]
    assert server["capabilities"]["broker"].startswith("redis://")
    assert ":**@" in server["capabilities"]["broker"]
    assert server["config"] == {"worker_task_restart_strategy": "IMMEDIATELY"}
    heart = Path(f"/proc/{fleet.heart_of('one')}")
    assert "redis" not in (heart / "cmdline").read_text(), "every user of the machine can read that"


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_after_a_restart_of_redis_only_prefetched_messages_return(fleet, plane, redis_server, pool):
    """A pool of threads has a queue of its own, and still runs what is in it."""
    fleet.worker("one", pool=pool)
    fleet.ready("one")
    registered(plane, "one")
    fleet.send("work", "running", UNTIL_RELEASED)
    fleet.begun("running")
    for name in ("a", "b", "c"):
        fleet.send("work", name, 0.1)
    eventually(lambda: fleet.unacked() == 4, why="all are prefetched")
    fleet.worker("two")
    fleet.ready("two")
    redis_server.stop()
    time.sleep(2)  # an outage has a length
    redis_server.start()
    fleet.release("running")
    ended(fleet, "a", "b", "c", "running")
    eventually(lambda: fleet.unacked() == 0, why="nothing is left over")
    assert fleet.count("end") == {"running": 1, "a": 1, "b": 1, "c": 1}
    assert fleet.count("start") == fleet.count("end")


def test_lost_connections_lose_no_received_message(fleet, plane):
    """A task that a child receives at that moment may run twice, because Celery forgets it and its end is lost."""
    fleet.worker("one", concurrency=2, PREFETCH="50")
    fleet.ready("one")
    names = [f"t{number}" for number in range(40)]
    for name in names:
        fleet.send("work", name, 0.1)
    eventually(lambda: fleet.unacked() + len(fleet.count("end")) >= 40, why="it has them all")
    for cuts in range(1, 5):
        time.sleep(0.3)
        for kind in ("normal", "pubsub"):
            fleet.redis.client_kill_filter(_type=kind, skipme=True)

        # Do not cut a connection while kombu pops a message for it, because Redis loses that message. The queue is
        # also empty before the messages return.
        def are_received_again(cuts=cuts):
            is_given_back = fleet.log("one").count("Messages returned after a lost connection") >= cuts
            return (is_given_back or len(fleet.count("end")) == len(names)) and not fleet.redis.llen("orders")

        eventually(are_received_again, why="they are received again")
        time.sleep(0.2)
    ended(fleet, *names)
    assert sum(fleet.count("end").values()) <= 40 + 2 * 4
    eventually(lambda: fleet.unacked() == 0, why="nothing is left over")


def test_a_task_that_kills_its_worker_is_stopped_and_others_complete(fleet, plane):
    """The test starts workers again, as a supervisor does."""
    respawned = 0
    for name in ("one", "two"):
        fleet.worker(name)
    fleet.ready("one", "two")
    poison = fleet.send("poison", id="poison")
    names = [f"by{number}" for number in range(12)]
    for name in names:
        fleet.send("work", name, 0.05)

    def over():
        nonlocal respawned
        for name, process in list(fleet.processes.items()):
            if process.poll() is not None:
                respawned += 1
                fleet.worker(name)
        return poison.state == "FAILURE" and all(fleet.count("end")[name] for name in names)

    eventually(over, within=100, why="the poison failed, the others completed")
    assert fleet.count("start")["poison"] == 4 and respawned == 4
    assert "quarantined" in str(poison.result)
    assert fleet.redis.hexists("controlplane:quarantine", "poison")
    assert [state for state in plane.states_of("poison") if state == "LOST"]


def test_a_task_that_kills_only_its_child_is_stopped_the_same_way(fleet, plane):
    fleet.worker("one", concurrency=2)
    fleet.ready("one")
    poison = fleet.send("poison", False, id="poison")
    fleet.send("work", "by", 0.1)
    eventually(lambda: poison.state == "FAILURE", why="it failed")
    ended(fleet, "by")
    assert fleet.count("start") == {"poison": 4, "by": 1}
    assert fleet.processes["one"].poll() is None
    eventually(lambda: fleet.unacked() == 0, why="nothing is left over")
    eventually(lambda: not fleet.redis.exists("controlplane:quarantine:unreported"), why="it counts as reported")


def test_chain_chord_eta_and_retries_continue_after_a_worker_was_killed(fleet, plane):
    fleet.worker("victim", PREFETCH="20")
    fleet.ready("victim")
    app = fleet.app
    chained = fleet.start(chain(work("first", UNTIL_RELEASED, app=app), work("second", 0.0, app=app)))
    fleet.begun("first")
    parts = [signature("tests.support.celery_app.add", ([n],), app=app) for n in (1, 2, 3)]
    total = fleet.start(chord(parts, signature("tests.support.celery_app.add", kwargs={"more": 10}, app=app)))
    fleet.send("flaky", "flaky")
    at = datetime.now(UTC) + timedelta(seconds=8)
    fleet.send("work", "eta", 0.0, eta=at)
    revoked = fleet.send("work", "revoked", 0.0)
    eventually(lambda: fleet.unacked() >= 7, why="the worker has them all")
    app.control.revoke(revoked.id)
    fleet.kill("victim")
    fleet.worker("living")
    fleet.release("first")
    ended(fleet, "first", "second", "flaky", "eta")
    eventually(lambda: chained.result == "second" and total.result == 16, why="the chain and the chord end")
    assert fleet.begun("eta").at >= at.timestamp() - 0.1
    assert fleet.count("end")["eta"] == 1 and fleet.count("start")["flaky"] == 3
    eventually(lambda: fleet.unacked() == 0, why="nothing is left over")


def test_a_revoked_task_is_stopped_and_stays_so(fleet, plane):
    fleet.worker("one")
    fleet.ready("one")
    running = fleet.send("work", "running", UNTIL_RELEASED)
    waiting = fleet.send("work", "waiting", 0)
    fleet.begun("running")
    fleet.app.control.revoke(waiting.id)
    fleet.app.control.revoke(running.id, terminate=True)
    eventually(lambda: running.state == waiting.state == "REVOKED", why="both are revoked")
    eventually(lambda: fleet.unacked() == 0 and not fleet.redis.llen("orders"), why="neither comes back")
    assert fleet.count("start") == {"running": 1}


def test_a_warm_shutdown_ends_running_tasks_and_returns_the_others(fleet, plane):
    fleet.worker("one", PREFETCH="30")
    fleet.ready("one")
    registered(plane, "one")
    fleet.send("work", "running", UNTIL_RELEASED)
    for number in range(23):
        fleet.send("work", f"t{number}", 0.01)
    fleet.begun("running")
    eventually(lambda: fleet.unacked() == 24, why="it holds them all")
    process = fleet.processes["one"]
    os.kill(process.pid, signal.SIGTERM)
    eventually(lambda: "TERMINATING" in plane.states(), why="it says so")
    fleet.release("running")
    assert process.wait(40) == 0
    ends = fleet.count("end")
    assert ends["running"] == 1
    assert plane.server("one@host")["state"] == "TERMINATED_GRACEFULLY", "said before the process was gone"
    eventually(lambda: fleet.redis.llen("orders") == 24 - sum(ends.values()), why="the rest is back")
    eventually(lambda: not fleet.redis.exists("controlplane:holders"), why="it left the holders")
    assert fleet.unacked() == 0
    fleet.worker("two")
    ended(fleet, *[f"t{number}" for number in range(23)])
    assert set(fleet.count("start").values()) == {1}


def test_a_cold_shutdown_returns_running_tasks_without_a_loss(fleet, plane):
    fleet.worker("one")
    fleet.ready("one")
    registered(plane, "one")
    fleet.send("work", "running", UNTIL_RELEASED)
    fleet.begun("running")
    os.kill(fleet.processes["one"].pid, signal.SIGQUIT)
    fleet.processes["one"].wait(40)
    eventually(lambda: fleet.redis.llen("orders") == 1, why="it is back")
    eventually(lambda: plane.server("one@host")["state"] == "TERMINATED_FORCED", why="its end is known")
    assert b'"losses"' not in fleet.redis.lindex("orders", 0)


def test_protected_and_unprotected_workers_keep_to_their_own_messages(fleet, plane):
    fleet.worker("old", PROTECTED="0", ACKS_LATE="1", PREFETCH="1")
    fleet.ready("old")
    fleet.send("work", "old", UNTIL_RELEASED)
    old = fleet.begun("old")
    fleet.worker("new")
    fleet.ready("new")
    registered(plane, "new")
    fleet.send("work", "new", UNTIL_RELEASED)
    new = fleet.begun("new")
    assert os.getpgid(old.pid) == fleet.processes["old"].pid != os.getpgid(new.pid)
    assert fleet.redis.hlen("unacked") == 1 and fleet.unacked() == 1
    fleet.kill("new")
    fleet.release("old")  # which is free then to take the other
    fleet.begun("new", 2)
    fleet.release("new")
    ended(fleet, "old", "new")
    assert fleet.count("start") == {"old": 1, "new": 2}


def test_a_cordoned_worker_completes_its_tasks_and_receives_no_more(fleet, plane):
    fleet.worker("one")
    fleet.ready("one")
    registered(plane, "one")
    server = plane.server("one@host")
    fleet.send("work", "before", UNTIL_RELEASED)
    fleet.begun("before")
    server["answer"] = {"cordoned": True}
    eventually(lambda: "Cordoned" in fleet.log("one"), why="it is told")
    fleet.send("work", "meanwhile", 0)
    fleet.release("before")
    ended(fleet, "before")
    beat = server["beats"]
    eventually(lambda: server["beats"] > beat + 3, why="it beats on")
    assert fleet.redis.llen("orders") == 1 and not fleet.count("start")["meanwhile"]
    server["answer"] = {}
    ended(fleet, "meanwhile")


def test_at_the_deadline_of_a_drain_remaining_tasks_run_elsewhere(fleet, plane):
    fleet.worker("one")
    fleet.ready("one")
    registered(plane, "one")
    fleet.send("work", "running", UNTIL_RELEASED)
    fleet.begun("running")
    deadline = datetime.now(UTC) + timedelta(seconds=2)
    plane.server("one@host")["answer"] = {"drain": {"deadline": deadline.isoformat()}}
    fleet.processes["one"].wait(40)
    assert time.time() >= deadline.timestamp()
    fleet.worker("two")
    fleet.begun("running", 2)
    eventually(lambda: plane.server("one@host")["state"] == "TERMINATED_FORCED", why="its end is known")


def test_tasks_of_a_worker_that_is_disconnected_run_elsewhere(fleet, plane):
    fleet.worker("one")
    fleet.ready("one")
    registered(plane, "one")
    fleet.send("work", "running", UNTIL_RELEASED)
    first = fleet.begun("running")
    plane.server("one@host")["state"] = "DISCONNECTED"
    fleet.processes["one"].wait(40)
    fleet.worker("two")
    second = fleet.begun("running", 2)
    assert max(entry.at for entry in fleet.entries() if entry.pid == first.pid) < second.at


def test_a_stuck_worker_is_flagged_and_cordoned_and_fails_its_check(fleet, plane):
    environment = {"CONTROLPLANE_CELERY_STUCK_AFTER": "2", "CONTROLPLANE_CELERY_WHEN_STUCK": "cordon"}
    fleet.worker("one", "-Q", "orders", **environment)
    fleet.ready("one")
    registered(plane, "one")
    check = [sys.executable, "-m", "controlplane.agent", "--check", "--name", "one@host"]
    checked = partial(subprocess.run, check, env=fleet.env, cwd=ROOT, capture_output=True, text=True)
    # For a moment, a slow machine may make the worker look stuck.
    eventually(lambda: checked().returncode == 0, why=lambda: checked().stdout)
    assert fleet.app.control.broadcast("go_deaf", reply=True, timeout=120, limit=1), "no message may come before"
    fleet.send("nothing")
    fleet.send("nothing")
    server = plane.server("one@host")
    eventually(lambda: "received nothing" in server["body"]["metrics"].get("stuck", ""), why="it is flagged")
    assert server["body"]["schedulable"] is False
    assert 0 < server["body"]["metrics"]["memory_percent"] <= 100 and server["body"]["metrics"]["cpu_percent"] >= 0
    server["answer"] = {"cordoned": True}
    eventually(lambda: "Cordoned" in fleet.log("one"), why="it is told")
    beat = server["beats"]
    eventually(lambda: server["beats"] > beat + 8, why="it beats on")
    assert server["body"]["schedulable"] is False, "nothing shows that it is well again"

    def fails():
        done = checked()
        return done.returncode == 1 and "messages waiting" in done.stdout

    eventually(fails, why=lambda: checked().stdout)


def test_long_failed_and_retried_tasks_are_recorded_and_others_counted(fleet, plane):
    fleet.worker("one", CONTROLPLANE_CELERY_SHOW_ARGUMENTS="true")
    fleet.ready("one")
    for _ in range(20):
        fleet.send("nothing")
    fleet.send("once")
    failed, long = fleet.send("fail"), fleet.send("work", "long", UNTIL_RELEASED)
    fleet.send("flaky", "flaky", id="flaky")
    eventually(lambda: "RUNNING" in plane.states_of(long.id), why="it is held for long, and recorded")
    fleet.release("long")
    ended(fleet, "long", "flaky")
    eventually(lambda: "COMPLETED" in plane.states_of(long.id), why="its end is recorded")
    record = plane.tasks[long.id][-1]
    assert (record["name"], record["queue"]) == ("tests.support.celery_app.work", "orders")
    assert record["root"] == long.id and record["running_seconds"] is not None and "'long'" in record["args"]
    assert "long" in record["result"]
    eventually(lambda: plane.states_of(failed.id) == ["FAILED"], why="the failure is recorded")
    error = plane.tasks[failed.id][0]["error"]
    assert (error["code"], error["message"]) == ("ValueError", "no such order") and "in fail" in error["traceback"]
    eventually(lambda: plane.states_of("flaky")[-1:] == ["COMPLETED"], why="its end is recorded, though it was short")
    assert plane.states_of("flaky").count("RETRIED") == 2
    eventually(
        lambda: plane.tally.get("tests.support.celery_app.nothing", {}).get("completed") == 20,
        why="the rest is counted",
    )
    eventually(
        lambda: plane.tally.get("tests.support.celery_app.once", {}).get("completed") == 1,
        why="what was acknowledged early ends as well",
    )
    assert not any(task["name"].endswith("nothing") for tasks in plane.tasks.values() for task in tasks)
