"""With `--async N` each pool process runs N coroutines at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.standin import Agent, ControlPlane, alive, eventually

pytestmark = pytest.mark.usefixtures("module")

WORK = """
import asyncio, logging, os, signal, subprocess, sys, threading, time
from controlplane.agent import checkpoint, context, progress
KEPT, MOST, running = [], 0, 0
async def meet(number):
    global MOST, running
    running += 1
    MOST = max(MOST, running)
    print("begins", number)
    while MOST < 3: await asyncio.sleep(0.01)
    sys.stderr.write(f"ends {number}"); progress(0.5, f"of {number}"); checkpoint(number)
    running -= 1
    return [os.getpid(), context.job]
async def pid(_):
    return os.getpid()
def function(_):
    return [os.getpid(), threading.current_thread().name]
def nap(seconds):
    time.sleep(seconds)
    return os.getpid()
def fail(payload):
    raise ValueError(payload)
async def die(_):
    os.kill(os.getpid(), 9)
async def wait(path):
    open(path, "w").close()
    try:
        await asyncio.sleep(1000)
    finally:
        open(path + ".cleaned", "w").close()
async def refuse_to_end(path):
    open(path, "w").close()
    while True:
        try: await asyncio.sleep(1000)
        except asyncio.CancelledError: pass
async def wait_in_thread(path):
    await asyncio.to_thread(subprocess.run, f"touch {path}; sleep 1000", shell=True)
def wait_in_function(path):
    open(path, "w").close()
    time.sleep(1000)
async def leave_task(path):
    KEPT.append(asyncio.create_task(wait(path)))
    await asyncio.sleep(0.1)
    return os.getpid()
async def leave_child(_):
    KEPT.append(subprocess.Popen(["sleep", "1000"]))
    return [os.getpid(), KEPT[-1].pid]
async def change_surroundings(_):
    os.chdir("/"); os.environ["LEFT"] = "x"; signal.signal(signal.SIGUSR1, signal.SIG_IGN)
async def look(_):
    return [os.getcwd(), os.environ.get("LEFT"), str(signal.getsignal(signal.SIGUSR1))]
"""


@pytest.fixture
def module(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(WORK)


@pytest.fixture
def looped(agent: Callable[..., Agent]) -> Callable[..., Agent]:
    return lambda *options: agent("--allow", "callable:work", "--concurrency", "1", "--async", "3", *options)


def submit(plane: ControlPlane, function: str, payload: Any = None, **fields: Any) -> str:
    return plane.submit({"type": "callable", "path": f"work:{function}"}, payload, **fields)


def final(plane: ControlPlane, attempt: str) -> dict[str, Any]:
    return dict(eventually(lambda: plane.final(attempt)))


def output(plane: ControlPlane, function: str, payload: Any = None, **fields: Any) -> Any:
    ended = final(plane, submit(plane, function, payload, **fields))
    assert ended["event"] == "COMPLETED", ended
    return ended["output"]


def test_coroutines_meet_in_one_process_and_each_has_its_own_context_and_output(plane, looped):
    looped()
    attempts = [submit(plane, "meet", number) for number in range(3)]
    outputs = [final(plane, attempt)["output"] for attempt in attempts]
    assert len({pid for pid, _ in outputs}) == 1
    assert len({job for _, job in outputs}) == 3
    for number, attempt in enumerate(attempts):
        own = [report for report in plane.reports if report["attempt"] == attempt]
        lines = [(one["stream"], *one["lines"]) for one in own if one["event"] == "LOG"]
        assert sorted(lines) == [("STDERR", f"ends {number}"), ("STDOUT", f"begins {number}")]
        assert [one["message"] for one in own if one["event"] == "PROGRESS"] == [f"of {number}"]
        assert [one["value"] for one in own if one["event"] == "CHECKPOINT"] == [number]


def test_the_worker_registers_its_slots(plane, looped):
    looped()
    [body] = eventually(lambda: [body for call, body in plane.calls if call == "servers"])
    assert body["max_concurrent"] == 3


def test_functions_run_one_after_the_other_and_do_not_stop_coroutines(plane, looped, tmp_path):
    looped()
    first = output(plane, "pid")
    long = submit(plane, "wait_in_function", str(tmp_path / "begun"))
    eventually((tmp_path / "begun").exists)
    assert output(plane, "pid") == first
    waiting = submit(plane, "function")
    assert output(plane, "pid") == first
    assert plane.final(waiting) is None
    plane.heartbeat["cancel"] = [long]
    assert final(plane, long)["event"] == "CANCELLED"


def test_an_error_ends_only_its_own_attempt(plane, looped):
    looped()
    first = output(plane, "pid")
    failed = final(plane, submit(plane, "fail", "broken"))["error"]
    assert (failed["code"], failed["message"]) == ("ValueError", "broken") and "work.py" in failed["traceback"]
    assert final(plane, submit(plane, "missing"))["error"]["code"] == "AttributeError"
    assert output(plane, "pid") == first


@pytest.mark.parametrize("reason", ["cancel", "timeout"])
def test_cancel_and_timeout_raise_in_the_coroutine(plane, looped, tmp_path, reason):
    looped()
    first = output(plane, "pid")
    attempt = submit(plane, "wait", str(tmp_path / "begun"), timeout=5 if reason == "timeout" else None)
    eventually((tmp_path / "begun").exists)
    if reason == "cancel":
        plane.heartbeat["cancel"] = [attempt]
    ended = final(plane, attempt)
    assert ended["event"] == "CANCELLED" if reason == "cancel" else ended["error"]["code"] == "STEP_TIMEOUT"
    assert (tmp_path / "begun.cleaned").exists()
    assert output(plane, "pid") == first


@pytest.mark.parametrize("function", ["refuse_to_end", "wait_in_thread", "wait_in_function"])
def test_code_that_goes_on_is_killed_and_the_others_are_given_back(plane, looped, tmp_path, function):
    looped()
    first = output(plane, "pid")
    attempt, other = submit(plane, function, str(tmp_path / "begun")), submit(plane, "wait", str(tmp_path / "other"))
    eventually(lambda: (tmp_path / "begun").exists() and (tmp_path / "other").exists())
    plane.heartbeat["cancel"] = [attempt]
    assert final(plane, attempt)["event"] == "CANCELLED"
    given_back = final(plane, other)
    assert given_back["event"] == "RELEASED" and "because of another task" in given_back["reason"]
    assert "begun" not in given_back, "its code had begun"
    assert not alive(first)
    assert output(plane, "pid") != first


def test_a_crash_ends_all_attempts_that_its_process_runs(plane, looped, tmp_path):
    looped()
    other = submit(plane, "wait", str(tmp_path / "other"))
    eventually((tmp_path / "other").exists)
    crashed = submit(plane, "die")
    for attempt in (crashed, other):
        assert final(plane, attempt)["error"]["code"] == "WORKER_CRASHED"
    assert output(plane, "pid")


def test_tasks_that_an_attempt_leaves_end_before_it_does(plane, looped, tmp_path):
    looped()
    first = output(plane, "leave_task", str(tmp_path / "begun"))
    assert (tmp_path / "begun.cleaned").exists()
    assert output(plane, "pid") == first


def test_what_is_left_behind_replaces_the_process_when_nothing_else_runs(plane, looped):
    worker = looped()
    first, child = output(plane, "leave_child")
    assert not alive(first) and not alive(child)
    assert output(plane, "pid") != first
    assert "it left the child process" in worker.log


def test_surroundings_are_put_back_when_nothing_else_runs(plane, looped):
    looped()
    before = output(plane, "look")
    output(plane, "change_surroundings")
    assert output(plane, "look") == before


def test_a_process_is_replaced_after_so_many_tasks(plane, looped):
    looped("--max-tasks-per-child", "2")
    pids = [output(plane, "pid") for _ in range(4)]
    assert pids[0] == pids[1] != pids[2] == pids[3]
    eventually(lambda: not alive(pids[0]))


def test_a_changed_source_file_replaces_the_process(plane, looped, tmp_path):
    looped()
    first = output(plane, "pid")
    (tmp_path / "work.py").write_text("import os\nasync def pid(_):\n    return [os.getpid(), 'new']\n")
    changed = eventually(lambda: isinstance(answer := output(plane, "pid"), list) and answer)
    assert changed[1] == "new" and changed[0] != first


def test_the_fence_kills_all_coroutines(plane, looped, tmp_path):
    looped()
    pid = output(plane, "pid")
    submit(plane, "refuse_to_end", str(tmp_path / "begun"))
    eventually((tmp_path / "begun").exists)
    plane.lower_fence(1)
    plane.down = True
    eventually(lambda: not alive(pid))


def test_nothing_outlives_the_agent(plane, looped, tmp_path):
    worker = looped()
    pid = output(plane, "pid")
    submit(plane, "wait", str(tmp_path / "begun"))
    eventually((tmp_path / "begun").exists)
    worker.process.kill()
    eventually(lambda: not alive(pid))


def test_at_sigterm_the_agent_ends_with_its_processes(plane, looped):
    worker = looped()
    pid = output(plane, "pid")
    worker.process.send_signal(signal.SIGTERM)
    assert worker.process.wait(30) == 0
    assert not alive(pid)


def test_a_call_that_a_dying_process_has_not_begun_goes_to_another_one(plane, looped):
    worker = looped()
    dying = output(plane, "pid")
    os.kill(dying, signal.SIGSTOP)
    attempt = submit(plane, "pid")
    eventually(lambda: worker.log.count("Job started") == 2)
    os.kill(dying, signal.SIGKILL)
    ended = final(plane, attempt)
    assert ended["event"] == "COMPLETED" and ended["output"] != dying
