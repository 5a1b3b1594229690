"""Limits of a task: its time and its memory."""

from __future__ import annotations

import sys

import pytest

from controlplane.agent.attempt import explain_kill
from controlplane.agent.command_line import build_parser
from controlplane.agent.fitness import memory
from controlplane.agent.fitness.memory import KernelKills, parse_size
from controlplane.agent.processes.child_process import ChildExit
from controlplane.agent.runners.runner import failure_of
from tests.support.standin import eventually

GREEDY = "import time; held = bytearray(300 * 1024 * 1024); time.sleep(1000)"


def error(plane, attempt):
    report = eventually(lambda: plane.final(attempt))
    assert report["event"] == "FAILED"
    return report["error"]


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1),
        ("1k", 1024),
        ("512M", 512 * 1024**2),
        ("1.5G", 3 * 512 * 1024**2),
        ("2 GiB", 2 * 1024**3),
        ("1GB", 1024**3),
    ],
)
def test_a_size_is_written_like_this(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "0", "-1", "much", "1X", "1 2", "nan"])
def test_a_wrong_size_ends_an_agent_before_it_starts(plane, agent, text):
    worker = agent(f"--memory-limit={text}")
    assert worker.exits() == 2
    assert "is not a size: write it like 512M or 2G" in worker.log


def test_a_task_without_a_timeout_has_that_of_the_agent_and_otherwise_its_own(plane, agent):
    agent("--task-timeout", "0.3")
    short, own = plane.submit("sleep 1000"), plane.submit("sleep 0.6", timeout=1000)
    assert error(plane, short) == {"code": "STEP_TIMEOUT", "message": "exceeded its timeout of 0.3 s", "traceback": ""}
    assert eventually(lambda: plane.final(own))["event"] == "COMPLETED"


def test_a_timeout_is_more_than_nothing(plane, agent):
    worker = agent("--task-timeout", "0")
    assert worker.exits() == 2
    assert "--task-timeout is 0 s but must be more than 0" in worker.log


def test_a_task_with_too_much_memory_is_killed_alone_and_failed(plane, agent, tmp_path):
    go = tmp_path / "go"
    agent("--memory-limit", "200M")
    modest = plane.submit(f"while [ ! -e {go} ]; do sleep 0.02; done")
    greedy = plane.submit({"type": "script", "command": [sys.executable, "-c", GREEDY]})
    failure = error(plane, greedy)
    assert failure["code"] == "OUT_OF_MEMORY"
    assert failure["message"].endswith("MiB of memory; a task of this worker may have 200 MiB")
    go.touch()
    assert eventually(lambda: plane.final(modest))["event"] == "COMPLETED"


def test_processes_that_a_task_starts_count_too(plane, agent):
    agent("--memory-limit", "200M")
    started = plane.submit(f"setsid {sys.executable} -c '{GREEDY}' & wait")
    assert error(plane, started)["code"] == "OUT_OF_MEMORY"


def test_memory_that_processes_share_counts_once(plane, agent):
    sharing = (
        "import os, time; held = bytearray(b'x') * (120 * 1024 * 1024); pids = [os.fork() for _ in range(3)]; "
        "time.sleep(3 if 0 not in pids else 1000)"
    )
    agent("--memory-limit", "400M")
    attempt = plane.submit({"type": "script", "command": [sys.executable, "-c", sharing]})
    assert eventually(lambda: plane.final(attempt))["event"] == "COMPLETED"


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    """Fake the counters of a kernel: `kernel(3)`."""
    own = tmp_path / "cgroup/job/memory.events"
    own.parent.mkdir(parents=True)
    (tmp_path / "self").mkdir()
    (tmp_path / "self/cgroup").write_text("0::/job\n")
    (tmp_path / "vmstat").write_text("oom_kill 99\n")
    monkeypatch.setattr(memory, "PROC", tmp_path)
    monkeypatch.setattr(memory, "CGROUPS", tmp_path / "cgroup")

    def count(kills):
        own.write_text(f"oom 7\noom_kill {kills}\noom_group_kill 0\n")

    count(0)
    count.own = own
    return count


def test_a_recent_kill_by_the_kernel_is_known(kernel):
    kills = KernelKills()
    assert not kills.has_killed()
    kernel(1)
    assert kills.has_killed()
    kills.look()
    assert kills.has_killed()
    kills.look()
    assert not kills.has_killed()


def test_where_our_own_group_has_no_counter_the_machine_has(kernel, tmp_path):
    kernel.own.unlink()
    kills = KernelKills()
    (tmp_path / "vmstat").write_text("pgfault 5\noom_kill 100\n")
    assert kills.has_killed()


def test_without_any_counter_nothing_is_known(kernel, tmp_path):
    kernel.own.unlink()
    (tmp_path / "vmstat").unlink()
    assert not KernelKills().has_killed()


@pytest.mark.parametrize(
    ("status", "kills", "message"),
    [
        (-9, 1, "the child process was killed by SIGKILL, when the kernel had run out of memory"),
        (-9, 0, "the child process was killed by SIGKILL"),
        (-15, 1, "the child process was killed by SIGTERM"),
        (1, 1, "exited with status 1"),
    ],
)
def test_code_that_the_kernel_killed_for_memory_is_lost_and_its_error_explains_it(kernel, status, kills, message):
    known = KernelKills()
    kernel(kills)
    ended = ChildExit("a", 1, status, b"", b"")
    report = explain_kill(failure_of(ended), ended, known)
    assert report["error"]["message"] == message
    assert report["error"]["code"] == ("WORKER_CRASHED" if status < 0 else "EXIT_1")


def test_the_help_explains_the_exit_status():
    help_text = " ".join(build_parser().format_help().split())
    assert (
        "exit status: 0 it was asked to end" in help_text
        and "; 1 any other end" in help_text
        and "; 2 it could not start" in help_text
    )
