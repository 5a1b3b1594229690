"""Orders of operators in the response to a heartbeat: stacks of running code, other slots and tags."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.standin import Agent, ControlPlane, Refuse, eventually

WORK = """
import os, time
def wait_for_file(path):
    while not os.path.exists(path):
        time.sleep(0.02)
    return "done"
async def wait_later(path):
    import asyncio
    while not os.path.exists(path):
        await asyncio.sleep(0.02)
    return "done"
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(WORK)


def stacks(plane: ControlPlane, attempt: str) -> list[str]:
    with plane.lock:
        return [one["text"] for one in plane.reports if (one["attempt"], one["event"]) == (attempt, "STACK")]


def begin(plane: ControlPlane, go: Path, function: str = "wait_for_file") -> str:
    attempt = plane.submit({"type": "callable", "path": f"work:{function}"}, str(go))
    eventually(lambda: "STARTED" in plane.events(attempt), "the start")
    return attempt


def dump(plane: ControlPlane, attempt: str) -> str:
    plane.heartbeat = {"dump": [attempt]}
    [text] = eventually(lambda: stacks(plane, attempt), "the stack")
    return str(text)


@pytest.mark.parametrize(
    ("options", "function", "seen"),
    [
        (("--isolation", "process"), "wait_for_file", "in wait_for_file"),
        (("--isolation", "process", "--max-tasks-per-child", "1"), "wait_for_file", "in wait_for_file"),
        (("--isolation", "pool"), "wait_for_file", "in wait_for_file"),
        (("--async", "2"), "wait_later", "in run_forever"),
    ],
)
def test_the_stack_of_a_running_function_is_reported_and_it_continues(plane, agent, tmp_path, options, function, seen):
    agent("--allow", "callable:work", *options)
    go = tmp_path / "go"
    attempt = begin(plane, go, function)
    # The process may still import the function, so the first stack may be of that.
    text = ""
    while seen not in text:
        text = dump(plane, attempt)
        assert text.startswith(("Thread", "Current thread")), text
        plane.heartbeat = {"dump": []}
        plane.reports[:] = [one for one in plane.reports if one["event"] != "STACK"]
        before = plane.count("heartbeat")
        eventually(lambda before=before: plane.count("heartbeat") > before + 1, "heartbeats without a request")
    go.touch()
    assert eventually(lambda: plane.final(attempt))["output"] == "done"


def test_a_script_has_no_stack_and_the_report_explains_it(plane, agent, tmp_path):
    agent()
    attempt = plane.submit(f"while [ ! -e {tmp_path}/go ]; do sleep 0.05; done")
    eventually(lambda: "STARTED" in plane.events(attempt), "the start")
    assert "no Python function of the agent" in dump(plane, attempt)
    (tmp_path / "go").touch()
    assert eventually(lambda: plane.final(attempt))["event"] == "COMPLETED"


PYTHON_SCRIPT = """
import os, sys, time
def wait_for_file(path):
    while not os.path.exists(path):
        time.sleep(0.02)
wait_for_file(sys.argv[1])
"""


@pytest.fixture
def python_script(plane: ControlPlane, tmp_path: Path) -> Callable[[], str]:
    """Return a function that begins a shell command with a Python process, which runs until a file exists."""
    (tmp_path / "script.py").write_text(PYTHON_SCRIPT)

    def begin_script() -> str:
        go = tmp_path / "go"
        attempt = plane.submit(f"true; {sys.executable} {tmp_path}/script.py {go} https://bob:hunter2@host; true")
        eventually(lambda: "STARTED" in plane.events(attempt), "the start")
        return attempt

    return begin_script


def fake_py_spy(folder: Path, script: str) -> str:
    """Write a program py-spy that runs a shell script, and return the PATH with it."""
    program = folder / "bin" / "py-spy"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return f"{program.parent}{os.pathsep}{os.environ['PATH']}"


def dump_until(plane: ControlPlane, attempt: str, words: str) -> str:
    """Ask for stacks again until they have these words, because the process may still start."""
    while words not in (text := dump(plane, attempt)):
        plane.heartbeat = {"dump": []}
        plane.reports[:] = [one for one in plane.reports if one["event"] != "STACK"]
        before = plane.count("heartbeat")
        eventually(lambda before=before: plane.count("heartbeat") > before + 1, "heartbeats without a request")
    return text


def test_py_spy_reads_the_python_processes_of_a_script_if_it_is_on_the_path(
    plane, agent, tmp_path, python_script, monkeypatch
):
    show_command_line = 'echo "$1 $2: $(tr "\\0" " " < /proc/$3/cmdline)"; exit 1'
    monkeypatch.setenv("PATH", fake_py_spy(tmp_path, show_command_line))
    agent()
    attempt = python_script()
    text = dump_until(plane, attempt, "dump --pid")
    [line] = [line for line in text.splitlines() if line.startswith("dump --pid: ")]
    assert "script.py" in line and "hunter2" not in line
    assert "(no stacks of process" in text and "Its processes: " in text
    (tmp_path / "go").touch()
    assert eventually(lambda: plane.final(attempt))["event"] == "COMPLETED"


def test_without_py_spy_the_report_says_what_to_install(plane, agent, tmp_path, python_script, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    agent()
    attempt = python_script()
    assert "install py-spy" in dump_until(plane, attempt, "Python processes")
    (tmp_path / "go").touch()
    assert eventually(lambda: plane.final(attempt))["event"] == "COMPLETED"


def test_one_request_is_answered_once_however_long_it_is_repeated(plane, agent, tmp_path):
    agent("--allow", "callable:work")
    attempt = begin(plane, tmp_path / "go")
    dump(plane, attempt)
    before = plane.count("heartbeat")
    eventually(lambda: plane.count("heartbeat") > before + 3, "heartbeats")
    assert len(stacks(plane, attempt)) == 1
    (tmp_path / "go").touch()
    eventually(lambda: plane.final(attempt))


def running(plane: ControlPlane) -> int:
    with plane.lock:
        started = [one["attempt"] for one in plane.reports if one["event"] == "STARTED"]
        return sum(not plane.final(attempt) for attempt in started)


def test_an_agent_takes_over_other_slots_and_registers_with_them_again(
    plane: ControlPlane, agent: Callable[..., Agent], tmp_path: Path
) -> None:
    agent("--allow", "callable:work", "--concurrency", "1", "--tags", "gpu")
    go = tmp_path / "go"
    attempts = [plane.submit({"type": "callable", "path": "work:wait_for_file"}, str(go)) for _ in range(4)]
    eventually(lambda: running(plane) == 1, "one attempt")
    [first] = [body for call, body in plane.calls if call == "servers"]
    assert (first["max_concurrent"], first["given_tags"]) == (1, ["gpu"])
    tags = sorted({*first["tags"]} - {"gpu"} | {"cpu"})
    plane.heartbeat = {"config": {"max_concurrent": 3, "tags": tags}}
    eventually(lambda: running(plane) == 3, "three attempts")
    go.touch()
    assert all(eventually(lambda one=one: plane.final(one)) for one in attempts)

    def purge(body):
        plane.script.clear()
        raise Refuse(410, "server_unknown")

    plane.script["heartbeat"] = purge
    eventually(lambda: plane.count("servers") == 2, "another registration")
    again = [body for call, body in plane.calls if call == "servers"][1]
    assert (again["max_concurrent"], again["tags"], again["given_tags"]) == (3, tags, ["cpu"])


def test_fewer_slots_stop_nothing_that_runs(plane, agent, tmp_path):
    agent("--allow", "callable:work", "--concurrency", "2")
    go = tmp_path / "go"
    job = {"type": "callable", "path": "work:wait_for_file"}
    attempts = [plane.submit(job, str(go)) for _ in range(2)]
    eventually(lambda: running(plane) == 2, "two attempts")
    plane.heartbeat = {"config": {"max_concurrent": 1, "tags": []}}
    before = plane.count("heartbeat")
    eventually(lambda: plane.count("heartbeat") > before + 2, "heartbeats")
    attempts.append(plane.submit(job, str(go)))
    assert running(plane) == 2
    go.touch()
    assert [eventually(lambda one=one: plane.final(one))["event"] for one in attempts] == ["COMPLETED"] * 3
