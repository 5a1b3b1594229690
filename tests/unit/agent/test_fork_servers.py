"""Functions that are called again are forked from a process that has imported their module."""

from __future__ import annotations

import os
from pathlib import Path

from tests.support.standin import alive, eventually

CALLS = """
import atexit, os, sys, random, threading, time
HOME = os.getpid()
def home(payload):
    print("called with", payload)
    job, session, number = os.environ["JOB_ID"], os.getsid(0), random.random()
    return {"home": HOME, "pid": os.getpid(), "parent": os.getppid(), "job": job, "session": session, "random": number,
            "descriptors": len(os.listdir("/proc/self/fd")), "reading": sys.stdin.read()}
def die(_):
    os.kill(os.getpid(), 9)
def leave(path):
    atexit.register(open(path, "w").close)
    global FILE, THREAD
    FILE = open(path + ".unflushed", "w")
    FILE.write("all")
    THREAD = threading.Thread(target=lambda: (time.sleep(0.2), open(path + ".thread", "w").close()))
    THREAD.start()
def nap(path):
    import subprocess
    child = subprocess.Popen(["setsid", "sleep", "1000"])
    with open(path, "w") as file: file.write(f"{child.pid} {os.getpid()}")
    time.sleep(1000)
"""
STRANGE = {
    "threaded": "import threading, time\nthreading.Thread(target=time.sleep, args=[1000], daemon=True).start()",
    "connected": "import socket\nPAIR = socket.socketpair()",
    "reading": "FILE = open(__file__)",
    "temporary": "import tempfile\nFOLDER = tempfile.TemporaryDirectory()",
    "curious": "import os\nATTEMPT = os.environ.get('JOB_ATTEMPT', 'none')",
}


def call(plane, path, payload=None):
    return plane.submit({"type": "callable", "path": path}, payload)


def called(plane, path, payload=None):
    attempt = call(plane, path, payload)
    return eventually(lambda: plane.final(attempt))


def warmed(plane, path, payload=None) -> list[dict]:
    """Return the outputs of calls. The last one ran in a forked process."""
    outputs = [called(plane, path, payload)["output"]]
    while outputs[-1]["home"] == outputs[-1]["pid"]:
        outputs.append(called(plane, path, payload)["output"])
    return outputs


def napping(file: Path) -> list[int]:
    """Return the process ids of the job's child and of the job itself."""
    words = eventually(lambda: file.exists() and len(pids := file.read_text().split()) == 2 and pids)
    return [int(pid) for pid in words]


def test_a_function_that_is_called_again_is_forked_where_its_module_is_imported(plane, agent, tmp_path):
    (tmp_path / "calls.py").write_text(CALLS)
    agent()
    cold, *_, warm = warmed(plane, "calls:home", "x")
    warmer = called(plane, "calls:home", "x")["output"]
    assert warm["home"] == warmer["home"] != cold["home"] and alive(warm["home"])
    assert len({output["job"] for output in (cold, warm, warmer)}) == 3
    assert warm["session"] == warm["pid"] and warm["parent"] not in (warm["home"], warmer["parent"])
    assert warm["random"] != warmer["random"] and warm["reading"] == ""
    assert cold["descriptors"] == warm["descriptors"] == warmer["descriptors"]
    attempts = [report["attempt"] for report in plane.reports if report["event"] == "COMPLETED"]
    logs = {report["attempt"]: report["lines"] for report in plane.reports if report["event"] == "LOG"}
    assert logs == {attempt: ["called with x"] for attempt in attempts}


def test_a_module_that_handles_the_signals_of_its_forks_is_forked_too(plane, agent, tmp_path):
    # From Python 3.12 on asyncio is one such, and with it Django.
    taking = "import signal\nos.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))\n"
    (tmp_path / "calls.py").write_text(CALLS + taking)
    agent()
    cold, *_, warm = warmed(plane, "calls:home", "x")
    assert cold["descriptors"] == warm["descriptors"]


def test_a_forked_process_is_killed_and_ends_like_any_other(plane, agent, tmp_path):
    (tmp_path / "calls.py").write_text(CALLS)
    worker = agent()
    server = warmed(plane, "calls:home")[-1]["home"]
    assert called(plane, "calls:die")["error"]["code"] == "WORKER_CRASHED"
    assert called(plane, "calls:leave", str(tmp_path / "left"))["event"] == "COMPLETED"
    assert (tmp_path / "left").exists(), "what is to be done at its exit was"
    assert (tmp_path / "left.unflushed").read_text() == "all" and (tmp_path / "left.thread").exists()
    assert called(plane, "calls:missing")["error"]["code"] == "AttributeError"

    pids = tmp_path / "pids"
    cancelled = call(plane, "calls:nap", str(pids))
    escaped, code = map(
        int, eventually(lambda: pids.exists() and len(words := pids.read_text().split()) == 2 and words)
    )
    plane.heartbeat["cancel"] = [cancelled]
    assert eventually(lambda: plane.final(cancelled))["event"] == "CANCELLED"
    assert not alive(escaped) and not alive(code)

    pids.unlink()
    call(plane, "calls:nap", str(pids))
    escaped, code = map(
        int, eventually(lambda: pids.exists() and len(words := pids.read_text().split()) == 2 and words)
    )
    worker.process.kill()
    eventually(lambda: not any(map(alive, (escaped, code, server))), "all died with the agent")


def test_after_so_many_calls_the_module_is_imported_again_and_no_call_waits_for_that(plane, agent, tmp_path):
    (tmp_path / "calls.py").write_text(f"{CALLS}time.sleep(1)")
    agent("--max-tasks-per-child", "2")
    first = last = warmed(plane, "calls:home")[-1]
    while last["home"] == first["home"]:
        last = called(plane, "calls:home")["output"]
    assert last["home"] != last["pid"], "until the next one is ready the one before goes on"
    eventually(lambda: not alive(first["home"]))


def test_with_one_task_per_child_each_imports_its_module(plane, agent, tmp_path):
    (tmp_path / "calls.py").write_text(CALLS)
    agent("--max-tasks-per-child", "1")
    for _ in range(4):
        output = called(plane, "calls:home")["output"]
        assert output["home"] == output["pid"]


def test_a_module_that_was_changed_is_called_as_it_is_now(plane, agent, tmp_path):
    (tmp_path / "calls.py").write_text(CALLS)
    agent()
    warmed(plane, "calls:home")
    (tmp_path / "calls.py").write_text("def home(_):\n    return 'changed'\n")
    assert called(plane, "calls:home")["output"] == "changed"


def test_a_module_whose_import_cannot_be_shared_is_imported_for_each_call(plane, agent, tmp_path):
    for name, text in STRANGE.items():
        (tmp_path / f"{name}.py").write_text(f"{text}\n{CALLS}")
    worker = agent()
    for name in STRANGE:
        for _ in range(2):
            called(plane, f"{name}:home")
        eventually(lambda name=name: called(plane, f"{name}:home") and f"module={name}" in worker.log)
        output = called(plane, f"{name}:home")["output"]
        assert output["home"] == output["pid"]


def test_a_process_to_fork_from_that_is_stopped_or_killed_costs_no_call(plane, agent, tmp_path):
    (tmp_path / "calls.py").write_text(CALLS)
    agent()
    for number in (19, 9):
        server = warmed(plane, "calls:home")[-1]["home"]
        os.kill(server, number)
        assert called(plane, "calls:home")["event"] == "COMPLETED"
        eventually(lambda server=server: not alive(server))
