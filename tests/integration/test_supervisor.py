"""The parts of a standalone control plane are started, printed and stopped together; here they are scripts."""

import os
import pty
import signal
import subprocess
import sys

import psutil
import pytest

from tests.support.processes import ROOT, eventually, free_port

RUN = """
import sys
from controlplane.standalone.supervisor import Part, Supervisor
parts = [Part(name, ["sh", "-c", script], stage, killed_after=float(killed)) for name, script, stage, killed in {parts}]
sys.exit(Supervisor(parts, ready="http://127.0.0.1:{port}/", greeting="hello").run())
"""
WAITS = "trap 'echo goodbye; exit' TERM; echo begun; while :; do sleep 0.1; done"
DEAF = "trap '' TERM; echo begun; while :; do sleep 0.1; done"
PATIENT = 600


# A signal that another thread is given does not wake the main one, as one that comes a moment before it waits.
UNHEARD = """
import signal
from controlplane.standalone import supervisor
class Supervisor(supervisor.Supervisor):
    def start(self, part):
        process = super().start(part)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        return process
    def greet(self):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        super().greet()
supervisor.Supervisor = Supervisor
"""


@pytest.fixture
def supervise():
    """Starts a supervisor of (name, script, stage, killed after so many seconds)."""
    started = []

    def start(*parts, stdout=subprocess.PIPE, first=""):
        code = first + RUN.format(parts=parts, port=free_port())
        started.append(
            subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=stdout, stderr=subprocess.STDOUT, text=True)
        )
        return started[-1]

    yield start
    for one in started:
        one.kill()
        one.wait()
        if one.stdout:
            one.stdout.close()


def read_until(process, *expected):
    """What it prints until each of these was in a line."""
    missing, lines = set(expected), []
    while missing:
        lines.append(process.stdout.readline())
        assert lines[-1], lines
        missing -= {text for text in missing if text in lines[-1]}
    return lines


def said(lines):
    """Lines without the time."""
    return [line.partition(" ")[2].rstrip() for line in lines]


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_one_stage_after_the_other_and_the_status_is_0(supervise, signum):
    one = supervise(("database", WAITS, 2, PATIENT), ("web", WAITS, 1, PATIENT))
    read_until(one, "database | begun", "web      | begun")
    one.send_signal(signum)
    rest, _ = one.communicate()
    assert one.returncode == 0, rest
    assert said(rest.splitlines()) == [
        f"system   | {signum.name} received",
        "web      | goodbye",
        "system   | web stopped (rc=0)",
        "database | goodbye",
        "system   | database stopped (rc=0)",
    ]


def test_a_signal_that_comes_a_moment_before_it_waits_is_heard(supervise):
    one = supervise(("web", WAITS, 1, PATIENT), first=UNHEARD)
    read_until(one, "web    | begun")
    one.terminate()
    assert one.wait() == 0


def test_when_one_part_ends_all_are_stopped_and_the_status_tells(supervise):
    one = supervise(("web", WAITS, 1, PATIENT), ("brief", "echo no luck; exit 3", 1, PATIENT))
    lines = said(one.communicate()[0].splitlines())
    assert one.returncode == 1, lines
    assert "brief  | no luck" in lines and "system | brief stopped (rc=3)" in lines
    assert "system | brief has ended, so everything is stopped" in lines
    assert lines[-1].startswith("system | web stopped")


def test_a_part_that_does_not_end_is_killed_and_the_status_tells(supervise):
    one = supervise(("deaf", DEAF, 1, 0.2))
    read_until(one, "deaf   | begun")
    one.terminate()
    lines = said(one.communicate()[0].splitlines())
    assert one.returncode == 1, lines
    assert lines[-2:] == ["system | deaf does not end: killed", "system | deaf stopped (rc=-9)"]


def test_what_a_part_leaves_behind_is_killed_with_it(supervise):
    one = supervise(("web", f'sh -c "{DEAF}" & echo child $!; {WAITS}', 1, PATIENT))
    line = next(line for line in read_until(one, "child", "web    | begun") if "child" in line)
    left = psutil.Process(int(line.split()[-1]))
    one.terminate()
    assert one.wait() == 0
    eventually(lambda: not left.is_running() or left.status() == psutil.STATUS_ZOMBIE, why="it was killed")


def test_when_nobody_reads_any_more_everything_is_stopped(supervise):
    one = supervise(("web", "while :; do echo more; sleep 0.1; done", 1, PATIENT))
    [line] = [line for line in read_until(one, "web started", "web    | more") if "web started" in line]
    web = psutil.Process(int(line.partition("pid=")[2].rstrip(")\n")))
    one.stdout.close()
    assert one.wait() == 0
    assert not web.is_running()


def test_names_are_coloured_in_a_terminal_alone(supervise):
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "rb") as screen:
        one = supervise(("web", "echo shown", 1, PATIENT), stdout=theirs)
        os.close(theirs)
        shown = b""
        while b"shown" not in shown:
            shown += screen.read1()
        one.wait()
    [line] = [line for line in shown.decode().splitlines() if line.endswith("shown")]
    assert line.startswith("\033[0m\033[36m") and line.endswith("web    | \033[0mshown")
    plain, _ = supervise(("web", "echo shown", 1, PATIENT)).communicate()
    assert "\033" not in plain
