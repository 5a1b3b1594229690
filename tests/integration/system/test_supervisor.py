"""The parts of a standalone control plane are started, printed and stopped together; here they are scripts."""

import os
import pty
import re
import signal
import subprocess
import sys

import psutil
import pytest

from tests.support.processes import ROOT, eventually, free_port

RUN = """
import sys
from controlplane.standalone.supervisor import Part, StandaloneSupervisor
parts = [Part(name, ["sh", "-c", script], stage, killed_after=float(killed)) for name, script, stage, killed in {parts}]
sys.exit(StandaloneSupervisor(parts, ready="http://127.0.0.1:{port}/", greeting="hello").run())
"""
CLIENT = """
from controlplane.standalone import supervisor
def part(name, *arguments, **options):
    return AnyPart(name, *arguments, **options, is_client=name == "client")
AnyPart, supervisor.Part = supervisor.Part, part
"""
WAITS = "trap 'echo goodbye; exit' TERM; echo begun; while :; do sleep 0.1; done"
DEAF = "trap '' TERM; echo begun; while :; do sleep 0.1; done"
PATIENT = 600


# A signal that another thread is given does not wake the main one, as one that comes a moment before it waits.
UNHEARD = """
import signal
from controlplane.standalone import supervisor
class Supervisor(supervisor.StandaloneSupervisor):
    def start(self, part):
        process = super().start(part)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        return process
    def greet(self):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        super().greet()
supervisor.StandaloneSupervisor = Supervisor
"""


@pytest.fixture
def supervise():
    """Start a supervisor of parts: (name, script, stage, seconds until it is killed)."""
    started = []

    def start(*parts, stdout=subprocess.PIPE, first=""):
        port = free_port()
        code = first + RUN.format(parts=parts, port=port)
        started.append(
            subprocess.Popen(
                [sys.executable, "-c", code], cwd=ROOT, stdout=stdout, stderr=subprocess.STDOUT, text=True,
                env={**os.environ, "PORT": str(port)},
            )
        )  # fmt: skip
        return started[-1]

    yield start
    for one in started:
        one.kill()
        one.wait()
        if one.stdout:
            one.stdout.close()


def read_until(process, *expected):
    """Return the lines that the process prints until each expected text was in one."""
    missing, lines = set(expected), []
    while missing:
        lines.append(process.stdout.readline())
        assert lines[-1], lines
        missing -= {text for text in missing if text in lines[-1]}
    return lines


def said(lines):
    """Return the lines without their times."""
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


def test_a_signal_just_before_it_waits_is_not_lost(supervise):
    one = supervise(("web", WAITS, 1, PATIENT), first=UNHEARD)
    read_until(one, "web    | begun")
    one.terminate()
    assert one.wait() == 0


def pid_of(lines, name):
    """Return the latest process of a part."""
    return int(re.findall(rf"{name} started \(pid=(\d+)\)", "".join(lines))[-1])


def test_a_part_that_ends_is_started_again_after_pauses_and_the_others_go_on(supervise):
    one = supervise(("web", WAITS, 1, PATIENT), ("brief", "echo no luck; exit 3", 1, PATIENT))
    lines = read_until(one, "brief ended with status 3; starting it again in 1 s", "web    | begun")
    lines += read_until(one, "brief started")
    lines += read_until(one, "brief ended with status 3; starting it again in 2 s")
    assert said(lines).count("brief  | no luck") == 2
    one.terminate()
    rest = said(one.communicate()[0].splitlines())
    assert one.returncode == 0, rest
    assert "system | web stopped (rc=0)" in rest and "".join(lines).count("web started") == 1


def test_what_a_killed_part_left_is_gone_before_it_is_started_again(supervise):
    one = supervise(("web", f'sh -c "{DEAF}" & echo child $!; {WAITS}', 1, PATIENT))
    lines = read_until(one, "child", "web    | begun")
    left = psutil.Process(int(next(line for line in lines if "child" in line).split()[-1]))
    os.kill(pid_of(lines, "web"), signal.SIGKILL)
    again = read_until(one, "web was killed by SIGKILL; starting it again in 1 s", "web started")
    assert pid_of(again, "web") != pid_of(lines, "web")
    assert not left.is_running() or left.status() == psutil.STATUS_ZOMBIE
    read_until(one, "web    | begun")
    one.terminate()
    assert one.wait() == 0


def test_a_part_that_was_started_wrongly_stops_everything_with_an_exit_status(supervise):
    one = supervise(("web", WAITS, 1, PATIENT), ("wrong", "exit 2", 1, PATIENT))
    lines = said(one.communicate()[0].splitlines())
    assert one.returncode == 1, lines
    assert "system | wrong cannot run, so everything is stopped" in lines
    assert lines[-1].startswith("system | web stopped")


def test_a_part_that_waits_for_its_next_start_is_not_started_while_all_are_stopped(supervise):
    one = supervise(("web", "trap 'sleep 2; exit' TERM; echo begun; while :; do sleep 0.1; done", 1, PATIENT),
                    ("brief", "exit 3", 2, PATIENT))  # fmt: skip
    read_until(one, "brief ended with status 3", "web    | begun")
    one.terminate()
    rest, _ = one.communicate()
    assert one.returncode == 0 and "brief started" not in rest


def test_a_client_begins_when_the_web_server_answers(supervise):
    serve = f"exec {sys.executable} -m http.server --bind 127.0.0.1 $PORT"
    one = supervise(("client", "echo begun; sleep 600", 1, PATIENT), ("web", serve, 2, PATIENT), first=CLIENT)
    lines = read_until(one, "client | begun", "hello")
    assert [line.split(" started")[0].rpartition(" ")[2] for line in lines if " started (" in line] == ["web", "client"]
    one.terminate()
    one.communicate()


def test_a_part_that_does_not_end_is_killed_and_the_exit_status_shows_it(supervise):
    one = supervise(("deaf", DEAF, 1, 0.2))
    read_until(one, "deaf   | begun")
    one.terminate()
    lines = said(one.communicate()[0].splitlines())
    assert one.returncode == 1, lines
    assert lines[-2:] == ["system | deaf does not end, so it is killed", "system | deaf stopped (rc=-9)"]


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
        one = supervise(("web", "echo shown; exit 2", 1, PATIENT), stdout=theirs)
        os.close(theirs)
        shown = b""
        while b"shown" not in shown:
            shown += screen.read1()
        one.wait()
    [line] = [line for line in shown.decode().splitlines() if line.endswith("shown")]
    assert line.startswith("\033[0m\033[36m") and line.endswith("web    | \033[0mshown")
    plain, _ = supervise(("web", "echo shown; exit 2", 1, PATIENT)).communicate()
    assert "\033" not in plain
