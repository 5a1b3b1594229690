"""The supervisor and the warden, with real child processes."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.agent.call import SIZE_LIMIT, outcome
from jobs.agent.supervisor import Command, Ended, Supervisor
from jobs.agent.warding import Warding
from liveness.agent import uptime
from tests.support.standin import ROOT, alive, eventually


@pytest.fixture
def warding() -> Iterator[Warding]:
    warding = Warding()
    warding.keep()
    yield warding
    warding.close()


@pytest.fixture
def supervisor(warding: Warding) -> Iterator[Supervisor]:
    with selectors.DefaultSelector() as selector:
        supervisor = Supervisor(selector, warding)
        supervisor.selector_for_tests = selector
        yield supervisor
        supervisor.kill_all()
        eventually(lambda: supervisor.reap() or not len(supervisor))


def start(supervisor: Supervisor, script: str, stdin: bytes = b"", **more) -> int:
    supervisor.start("key", Command(["/bin/sh", "-c", script], dict(os.environ), stdin, **more))
    return supervisor.pid("key")


def end(supervisor: Supervisor) -> Ended:
    def turn():
        supervisor.stream(supervisor.selector_for_tests.select(0.02))
        return supervisor.reap()

    return eventually(turn)[0]


def test_a_child_gets_its_input_and_gives_its_output_and_status(supervisor):
    start(supervisor, "cat; echo err >&2; exit 7", b"x" * 300_000)
    ended = end(supervisor)
    assert (ended.status, ended.stderr, ended.stdout) == (7, b"err\n", b"x" * 16384)


def test_the_result_has_a_channel_of_its_own(supervisor):
    supervisor.start(
        "key",
        Command(
            [sys.executable, "-c", "import os,sys; print(1); os.write(int(sys.argv[1]), b'result')"],
            dict(os.environ), b"", with_result=True,
        ),
    )  # fmt: skip
    ended = end(supervisor)
    assert (ended.stdout, ended.result) == (b"1\n", b"result")


def test_a_child_leads_its_own_session_and_inherits_nothing_of_ours(supervisor, warding):
    start(supervisor, "ps -o sid= -p $$; ls /proc/$$/fd | wc -l")
    pid = supervisor.pid("key")
    sid, descriptors = end(supervisor).stdout.split()
    assert (int(sid), int(descriptors)) == (pid, 3)


def test_what_ignores_sigterm_is_killed_after_the_patience(supervisor, tmp_path):
    start(supervisor, f"trap '' TERM; touch {tmp_path}/on; while true; do sleep 0.05; done")
    eventually((tmp_path / "on").exists)
    assert supervisor.kill("key", patience=0.1)
    assert end(supervisor).status == -signal.SIGKILL


def test_what_ended_by_itself_is_not_said_to_be_killed(supervisor):
    pid = start(supervisor, "exit 0")
    eventually(lambda: not alive(pid))
    assert supervisor.kill("key") is False
    assert end(supervisor).status == 0


def test_processes_left_behind_in_the_group_die_with_their_leader(supervisor):
    start(supervisor, "sleep 100 >/dev/null 2>&1 & echo $!")
    left = int(end(supervisor).stdout)
    eventually(lambda: not alive(left))


def test_something_that_left_the_group_and_holds_the_output_does_not_hold_us(supervisor):
    start(supervisor, "setsid sh -c 'while echo x; do :; done' & sleep 0.1")
    assert end(supervisor).status == 0


def test_a_child_that_reads_no_input_is_not_waited_for(supervisor):
    start(supervisor, "exec <&-; sleep 0.1", b"x" * 300_000)
    assert end(supervisor).status == 0


def test_no_code_of_a_job_runs_when_its_agent_dies_before_the_warden_knows_it(tmp_path):
    code = f"""
import os, selectors
from jobs.agent.supervisor import Command, Supervisor
class Warding:
    def add(self, group):
        os.write(1, str(group).encode())
        os.kill(os.getpid(), 9)
supervisor = Supervisor(selectors.DefaultSelector(), Warding())
supervisor.start("key", Command(["touch", "{tmp_path}/ran"], dict(os.environ), b""))
"""
    parent = subprocess.run([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    eventually(lambda: not alive(int(parent.stdout)))
    assert not (tmp_path / "ran").exists()


def test_a_missing_command_or_directory_raises(supervisor):
    with pytest.raises(FileNotFoundError):
        supervisor.start("key", Command(["/no/such"], {}, b""))
    with pytest.raises(FileNotFoundError):
        start(supervisor, "true", cwd="/no/such")
    assert len(supervisor) == 0


def test_the_warden_kills_the_groups_of_a_killed_parent_but_not_those_that_ended(tmp_path):
    code = """
import os, subprocess, sys
from jobs.agent.warding import Warding
warding = Warding(); warding.keep()
children = [subprocess.Popen(["sleep", "100"], start_new_session=True, stdout=subprocess.DEVNULL) for _ in range(2)]
for child in children: warding.add(child.pid)
warding.remove(children[1].pid)
print(*(child.pid for child in children), flush=True)
os.kill(os.getpid(), 9)
"""
    parent = subprocess.run([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    ours, ended = map(int, parent.stdout.split())
    assert parent.returncode == -signal.SIGKILL
    eventually(lambda: not alive(ours))
    assert alive(ended)
    os.kill(ended, signal.SIGKILL)


def test_the_warden_kills_at_the_fence_and_lives_on(warding):
    child = subprocess.Popen(["sleep", "100"], start_new_session=True)
    warding.add(child.pid)
    warding.fence_at(uptime() + 3600)
    warding.fence_at(uptime() + 0.1)
    assert child.wait(timeout=5) == -signal.SIGKILL
    warding.remove(child.pid)
    assert alive(warding.pid)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_warden_takes_no_notice_of_polite_signals(warding, number):
    child = subprocess.Popen(["sleep", "100"], start_new_session=True)
    warding.add(child.pid)
    warding.fence_at(uptime())  # once it has killed, it is past its beginning, and its handlers are in place
    child.wait(timeout=5)
    os.kill(warding.pid, number)
    second = subprocess.Popen(["sleep", "100"], start_new_session=True)
    warding.add(second.pid)
    warding.close()
    assert second.wait(timeout=5) == -signal.SIGKILL


def call(path: str, payload: object) -> dict:
    with tempfile.TemporaryFile() as channel:
        subprocess.run(
            [sys.executable, "-m", "jobs.agent.call", path, str(channel.fileno())],
            input=json.dumps(payload).encode(), cwd=ROOT, pass_fds=[channel.fileno()], check=True,
        )  # fmt: skip
        channel.seek(0)
        return json.loads(channel.read())


def test_the_call_child_hands_back_the_result():
    assert call("json:dumps", {"a": [1]}) == {"output": '{"a": [1]}'}


def test_the_call_child_hands_back_the_error():
    error = call("math:sqrt", -1)["error"]
    assert (error["code"], error["message"]) == ("ValueError", "math domain error")
    assert "Traceback" in error["traceback"]


@pytest.mark.parametrize(
    ("path", "code"),
    [("no_such_module:x", "ModuleNotFoundError"), ("json:no", "AttributeError"), ("json", "ValueError"),
     ("os:path.join", "ValueError"), ("sys:exit", "SystemExit"), ("builtins:float", "RESULT_NOT_JSON")],
)  # fmt: skip
def test_every_way_to_fail_has_its_code(path, code):
    assert json.loads(outcome(path, "nan"))["error"]["code"] == code


@pytest.mark.parametrize("letter", ["x", "é", "\ud800"])
def test_an_output_at_the_limit_of_its_size_is_handed_back_and_one_beyond_says_both_sizes(letter):
    width = len(letter.encode(errors="surrogatepass"))
    most = (SIZE_LIMIT - len('{"a":[1,""]}')) // width
    at = json.loads(outcome("json:loads", json.dumps({"a": [1, letter * most]})))
    assert at == {"output": {"a": [1, letter * most]}}
    beyond = json.loads(outcome("json:loads", json.dumps({"a": [1, letter * (most + 1)]})))["error"]
    assert (beyond["code"], beyond["traceback"]) == ("OUTPUT_TOO_LARGE", "")
    assert str(SIZE_LIMIT) in beyond["message"]
    assert str(len('{"a":[1,""]}') + width * (most + 1)) in beyond["message"]


def test_the_warden_knows_the_clock_of_the_fence():
    from jobs.agent import warden

    assert abs(warden.time.clock_gettime(warden.CLOCK) - uptime()) < 1
    assert Path(warden.__file__).read_text().count("liveness") == 1  # named, not imported: it starts in no time
