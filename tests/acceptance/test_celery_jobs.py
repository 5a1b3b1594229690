"""Jobs that are Celery tasks, run by real workers on a real Redis, beside a stand-in control plane."""

import os
import signal

import pytest

from tests.support.celery_fleet import UNTIL_RELEASED, judged_soon, registered
from tests.support.processes import eventually

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(600)]


def submit(plane, task, *args, timeout=None, **kwargs):
    """Submit a job for the next worker that claims. Return the id of its attempt."""
    name = task if "." in task else f"tests.support.celery_app.{task}"
    action = {"type": "celery", "task": name, "args": list(args), "kwargs": kwargs, "queue": "orders"}
    return plane.submit(action, {"for": "ann"}, timeout)


def report(plane, attempt):
    """Wait for the final report of an attempt, and return it."""
    return eventually(lambda: plane.final(attempt), why=f"{attempt} ends")


@pytest.mark.parametrize("pool", ["prefork", "threads", "solo"])
def test_the_result_of_a_task_is_the_output_of_its_job(fleet, plane, pool):
    fleet.worker("one", pool=pool)
    numbers = submit(plane, "add", [1, 2], more=3)
    broken, retried = submit(plane, "fail"), submit(plane, "flaky", "flaky")
    about = submit(plane, "about")
    unknown, wrong = submit(plane, "no.such.task"), submit(plane, "add", 1, 2, 3)
    assert report(plane, numbers) == {"attempt": numbers, "event": "COMPLETED", "output": 6}
    assert plane.events(numbers) == ["STARTED", "COMPLETED"]
    error = report(plane, broken)["error"]
    assert (error["code"], error["message"]) == ("ValueError", "no such order")
    assert "in fail" in error["traceback"]
    assert report(plane, retried)["event"] == "COMPLETED" and fleet.count("start")["flaky"] == 3
    known = report(plane, about)["output"]
    assert (known["attempt"], known["payload"], known["step"]) == (1, {"for": "ann"}, None)
    assert report(plane, unknown) == {"attempt": unknown, "event": "RELEASED", "reason": "not_allowed"}
    assert report(plane, wrong)["error"]["code"] == "TypeError"
    assert "celery" in plane.server("one@host")["tags"]
    assert not plane.tasks, "what is a job already is not recorded as one"


def test_a_job_waits_for_a_free_place_and_is_listed_once_it_runs(fleet, plane):
    fleet.worker("one", concurrency=2)
    fleet.ready("one")
    registered(plane, "one")
    fleet.send("work", "task", UNTIL_RELEASED)
    fleet.begun("task")
    eventually(lambda: plane.server("one@host")["body"]["metrics"]["running"] == 1, why="the worker knows that it runs")
    beats = plane.beats_of("one")
    eventually(lambda: plane.beats_of("one") > beats, why="and asks for one job, not for two")
    first, second = submit(plane, "work", "first", UNTIL_RELEASED), submit(plane, "work", "second", 0)
    fleet.begun("first")
    eventually(lambda: plane.events(first) == ["STARTED"], why="it runs")
    beat = eventually(lambda: listed(plane, first), why="it is listed")
    assert beat["pid"] == fleet.begun("first").pid
    assert [item["id"] for item in plane.pending] == [second], "another worker may have it"
    plane.server("one@host")["answer"] = {"cancel": [first]}
    assert report(plane, first) == {"attempt": first, "event": "CANCELLED"}
    plane.server("one@host")["answer"] = {}
    fleet.begun("second")
    assert report(plane, second)["output"] == "second"
    assert not fleet.count("end")["first"]


def listed(plane, attempt):
    """Return the entry of an attempt in the latest list of running attempts."""
    with plane.lock:
        lists = [body["running"] for call, body in plane.calls if call == "heartbeat" and "running" in body]
    return next((row for row in lists[-1] if row["attempt"] == attempt), None) if lists else None


def test_a_job_that_hangs_is_silent_and_is_killed_once_it_is_lost(fleet, plane):
    fleet.worker("one", concurrency=2)
    hangs, busy = submit(plane, "hold_the_interpreter", "hangs", "a" * 60 + "b"), submit(plane, "work", "busy", 600)
    for name in ("hangs", "busy"):
        fleet.begun(name)
    eventually(lambda: "No sign of life" in fleet.log("one"), why="it hangs")
    eventually(lambda: listed(plane, busy) and not listed(plane, hangs), why="its process gives no sign of life")
    plane.server("one@host")["answer"] = {"lost": [hangs]}
    eventually(lambda: hangs in stopped(plane), why="it was killed")
    eventually(lambda: listed(plane, busy), why="the other runs on")
    assert "busy" not in fleet.count("end")


def stopped(plane):
    """Return the attempts that the latest heartbeat reports as stopped."""
    with plane.lock:
        return [body for call, body in plane.calls if call == "heartbeat"][-1].get("stopped", [])


def test_a_job_ends_at_its_timeout_or_when_it_kills_its_process(fleet, plane):
    fleet.worker("one")
    long, deadly = submit(plane, "work", "long", UNTIL_RELEASED, timeout=5), submit(plane, "poison", False)
    assert report(plane, long)["error"]["code"] == "STEP_TIMEOUT"
    assert report(plane, deadly)["error"]["code"] == "WORKER_CRASHED"
    assert not fleet.count("end") and fleet.count("start") == {"long": 1, "poison": 1}


def test_the_message_of_a_superseded_attempt_is_dropped(fleet, plane):
    stale, live = submit(plane, "work", "stale"), submit(plane, "work", "live")
    plane.superseded.add(stale)
    fleet.worker("one")
    assert report(plane, live)["event"] == "COMPLETED"
    eventually(lambda: fleet.unacked() == 0, why="its message is settled")
    assert fleet.count("start") == {"live": 1}


@pytest.mark.parametrize("with_heart", [False, True])
def test_a_killed_worker_leaves_its_job_to_the_control_plane(fleet, plane, with_heart):
    fleet.worker("victim")
    fleet.ready("victim")
    running = submit(plane, "work", "running", UNTIL_RELEASED)
    fleet.begun("running")
    registered(plane, "victim")
    fleet.kill("victim", heart=with_heart)
    if with_heart:
        plane.judge_soon("victim")
    fleet.worker("living")
    eventually(lambda: plane.server("victim@host")["state"] in ("ERROR", "DISCONNECTED"), why="it is lost")
    again = submit(plane, "work", "running", 0.1)
    assert report(plane, again)["event"] == "COMPLETED"
    eventually(lambda: fleet.unacked() == 0, why="nobody holds its message")
    assert plane.events(running) == ["STARTED"], "it says nothing of what it does not know"
    assert fleet.count("start") == {"running": 2} and fleet.count("end") == {"running": 1}
    if not with_heart:
        eventually(lambda: not queue_of(fleet, plane, "victim"), why="its queue is gone")


def queue_of(fleet, plane, name):
    with plane.lock:
        instance = next(key for key, server in plane.servers.items() if server["name"] == f"{name}@host")
    return fleet.redis.exists(f"controlplane.jobs.{instance}")


def test_the_end_of_a_job_without_a_heart_is_reported_by_the_next_heart(fleet, plane):
    fleet.worker("one")
    fleet.ready("one")
    job = submit(plane, "work", "job", 3)
    fleet.begun("job")
    os.kill(fleet.heart_of("one"), signal.SIGKILL)
    assert report(plane, job)["output"] == "job"
    assert fleet.count("start") == {"job": 1}


def test_a_warm_shutdown_completes_a_running_job_although_its_heart_is_killed(fleet, plane):
    fleet.worker("one")
    fleet.ready("one")
    job = submit(plane, "work", "job", UNTIL_RELEASED)
    fleet.begun("job")
    os.kill(fleet.processes["one"].pid, signal.SIGTERM)
    eventually(lambda: plane.server("one@host")["state"] == "TERMINATING", why="it ends")
    registrations = plane.count("servers")
    os.kill(fleet.heart_of("one"), signal.SIGKILL)
    eventually(lambda: plane.count("servers") > registrations, why="another heart registers")
    fleet.release("job")
    assert fleet.processes["one"].wait(40) == 0
    assert report(plane, job)["output"] == "job"
    assert plane.server("one@host")["state"] == "TERMINATED_GRACEFULLY"


def test_without_the_control_plane_a_job_stops_and_tasks_continue(fleet, plane):
    fleet.env["CONTROLPLANE_CELERY_CONDEMNED_FOR"] = "6"  # as long as the heart may fail to ask the broker
    fleet.worker("one", concurrency=2)
    fleet.ready("one")
    fleet.send("work", "task", 15)
    job = submit(plane, "work", "job", UNTIL_RELEASED)
    fleet.begun("task")
    process = fleet.begun("job").pid
    judged_soon(plane, "one")
    plane.down = True
    eventually(lambda: not os.path.exists(f"/proc/{process}"), why="its code is ended")
    eventually(lambda: fleet.count("end")["task"] == 1, why="the task ends")
    plane.down = False
    assert report(plane, job) == {"attempt": job, "event": "RELEASED", "reason": "fenced"}
