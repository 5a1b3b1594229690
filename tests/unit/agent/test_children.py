"""The supervisor and the reaper, with real child processes."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane.agent.fence import read_uptime
from controlplane.agent.limits import SIZE_LIMIT
from controlplane.agent.processes.callable_child import run_callable
from controlplane.agent.processes.child_process import ChildCommand, ChildExit
from controlplane.agent.processes.supervisor import Supervisor
from tests.support.escape import escaped, escaping, gone
from tests.support.standin import ROOT, alive, eventually


@pytest.fixture
def supervisor() -> Iterator[Supervisor]:
    with selectors.DefaultSelector() as selector:
        supervisor = Supervisor(selector)
        supervisor.selector_for_tests = selector
        yield supervisor
        supervisor.close()
        assert not len(supervisor)


def start(supervisor: Supervisor, script: str, stdin: bytes = b"", **more) -> int:
    supervisor.start_child("key", ChildCommand(["/bin/sh", "-c", script], dict(os.environ), stdin, **more))
    return supervisor.child_pid("key")


def turn(supervisor: Supervisor) -> list[ChildExit]:
    supervisor.transfer_ready(supervisor.selector_for_tests.select(0.02))
    return supervisor.reap_children()


def end(supervisor: Supervisor) -> ChildExit:
    return eventually(lambda: turn(supervisor))[0]


def test_a_child_gets_its_input_and_gives_its_output_and_status(supervisor):
    start(supervisor, "cat; echo err >&2; exit 7", b"x" * 300_000)
    ended = end(supervisor)
    assert (ended.status, ended.stderr, ended.stdout) == (7, b"err\n", b"x" * 16384)


def test_the_result_has_a_channel_of_its_own(supervisor):
    supervisor.start_child(
        "key",
        ChildCommand(
            [sys.executable, "-c", "import os,sys; print(1); os.write(int(sys.argv[1]), b'result')"],
            dict(os.environ), b"", with_result=True,
        ),
    )  # fmt: skip
    ended = end(supervisor)
    assert (ended.stdout, ended.result) == (b"1\n", b"result")


def test_a_child_leads_its_own_session_and_inherits_nothing_of_ours(supervisor):
    start(supervisor, "ps -o sid= -p $$; ls /proc/$$/fd")
    ended = end(supervisor)
    sid, *descriptors = ended.stdout.split()
    assert (int(sid), descriptors) == (ended.pid, [b"0", b"1", b"2"])


def test_code_that_ignores_sigterm_is_killed_after_the_patience(supervisor, tmp_path):
    start(supervisor, f"trap '' TERM; touch {tmp_path}/on; while true; do sleep 0.05; done")
    eventually((tmp_path / "on").exists)
    assert supervisor.kill_child("key", patience=0.1)
    assert end(supervisor).status == -signal.SIGKILL


def test_a_child_that_ended_by_itself_does_not_count_as_killed(supervisor):
    start(supervisor, "exit 0")
    eventually(lambda: not alive(supervisor._children["key"].process.pid))
    assert supervisor.kill_child("key") is False
    assert end(supervisor).status == 0


def test_a_child_that_ended_by_itself_does_not_count_as_killed_during_its_cleanup(supervisor, tmp_path):
    wait = f"echo looked; touch {tmp_path}/on; until [ -e {tmp_path}/go ]; do sleep 0.05; done"
    start(supervisor, "exit 3", cleanup=["/bin/sh", "-c", wait])
    eventually(lambda: not turn(supervisor) and (tmp_path / "on").exists())
    turn(supervisor)
    assert supervisor.kill_child("key") is supervisor.kill_child("key", patience=1.0) is False
    (tmp_path / "go").touch()
    ended = end(supervisor)
    assert (ended.status, ended.cleanup_output) == (3, "looked\n")


def test_killed_code_is_cleaned_up_after_whatever_is_asked_of_it_then(supervisor, tmp_path):
    wait = f"echo >>{tmp_path}/on; until [ -e {tmp_path}/go ]; do sleep 0.05; done"
    start(supervisor, f"touch {tmp_path}/begun; sleep 100", cleanup=["/bin/sh", "-c", wait])
    eventually((tmp_path / "begun").exists)
    assert supervisor.kill_child("key")
    eventually(lambda: not turn(supervisor) and (tmp_path / "on").exists())
    turn(supervisor)
    assert supervisor.kill_child("key", patience=1.0) and supervisor.kill_child("key")
    (tmp_path / "go").touch()
    assert end(supervisor).status == -signal.SIGKILL
    assert (tmp_path / "on").read_text() == "\n", "it is run to its end, once"


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


def test_no_code_of_a_job_runs_when_its_agent_dies_before_the_reaper_begins(tmp_path):
    code = f"""
import os, selectors, subprocess
from controlplane.agent.processes.supervisor import Supervisor
from controlplane.agent.processes.child_process import ChildCommand
class Stopped(subprocess.Popen):
    def __init__(self, command, **options):
        super().__init__(["/bin/sh", "-c", 'kill -STOP $$; exec "$@"', "sh", *command], **options)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT)
        os.write(1, str(self.pid).encode())
        os.kill(os.getpid(), 9)
subprocess.Popen = Stopped
supervisor = Supervisor(selectors.DefaultSelector())
supervisor.start_child("key", ChildCommand(["touch", "{tmp_path}/ran"], dict(os.environ), b""))
"""
    parent = subprocess.run([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    os.kill(int(parent.stdout), signal.SIGCONT)
    eventually(lambda: not alive(int(parent.stdout)))
    assert not (tmp_path / "ran").exists()


def test_a_missing_command_or_directory_is_no_exit_status(supervisor):
    supervisor.start_child("key", ChildCommand(["/no/such"], {}, b""))
    assert end(supervisor).problem == "No such file or directory: '/no/such'"
    start(supervisor, "true", cwd="/no/such/place")
    assert end(supervisor).problem == "No such file or directory: '/no/such/place'"
    supervisor.start_child("key", ChildCommand(["true", "x" * 3_000_000], {}, b""))
    assert "Argument list too long" in end(supervisor).problem
    start(supervisor, "exit 127")
    ended = end(supervisor)
    assert (ended.problem, ended.status) == ("", 127)


def test_neither_setsid_nor_nohup_nor_a_double_fork_outlives_the_code(supervisor, tmp_path):
    file = tmp_path / "pids"
    start(supervisor, f"{escaping(file)}; exit 3")
    assert end(supervisor).status == 3
    assert gone(escaped(file))


def test_a_process_that_is_another_at_each_look_ends_with_the_code(supervisor, tmp_path):
    runner = tmp_path / "runner.py"
    runner.write_text(
        f"import os\nwhile True:\n    os.fork() and os._exit(0)\n    open('{tmp_path}/alive', 'w').close()\n"
    )
    start(
        supervisor,
        f"setsid {sys.executable} -I -S {runner} & while [ ! -e {tmp_path}/alive ]; do sleep 0.01; done; exit 3",
    )
    assert end(supervisor).status == 3
    (tmp_path / "alive").unlink()
    time.sleep(0.2)  # it would write again at once
    assert not (tmp_path / "alive").exists()


@pytest.mark.parametrize("patience", [0, 0.1])
def test_when_the_code_has_ended_by_force_nothing_of_it_is_left(supervisor, tmp_path, patience):
    file = tmp_path / "pids"
    start(supervisor, f"{escaping(file)}; sleep 100")
    pids = escaped(file)
    assert supervisor.kill_child("key", patience)
    assert end(supervisor).status < 0
    assert gone(pids)


def test_the_reaper_kills_at_the_fence_what_has_escaped_too(supervisor, tmp_path):
    file = tmp_path / "pids"
    supervisor.set_fence_deadline(read_uptime() + 3600)
    start(supervisor, f"{escaping(file)}; sleep 100")
    pids = escaped(file)
    supervisor.set_fence_deadline(read_uptime() + 0.1)
    eventually(lambda: gone(pids))
    assert end(supervisor).status == -signal.SIGKILL


def test_code_that_begins_has_the_fence_that_was_set_before(supervisor):
    supervisor.set_fence_deadline(read_uptime() + 0.3)
    start(supervisor, "sleep 100")
    assert end(supervisor).status == -signal.SIGKILL


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_the_reaper_takes_no_notice_of_polite_signals(supervisor, tmp_path, number):
    go = tmp_path / "go"
    reaper = start(supervisor, f"while [ ! -e {go} ]; do sleep 0.01; done; exit 5")
    eventually(lambda: turn(supervisor) or supervisor.child_pid("key") != reaper)
    os.kill(reaper, number)
    go.touch()
    assert end(supervisor).status == 5


PARENT = """
import os, selectors, sys
from controlplane.agent.processes.supervisor import Supervisor
from controlplane.agent.processes.child_process import ChildCommand
supervisor = Supervisor(selectors.DefaultSelector())
supervisor.start_child("key", ChildCommand(["sh", "-c", sys.argv[1]], dict(os.environ), b""))
"""


def test_all_of_it_dies_with_a_killed_agent(tmp_path):
    file = tmp_path / "pids"
    code = PARENT + "import time; time.sleep(100)"
    parent = subprocess.Popen([sys.executable, "-c", code, f"{escaping(file)}; sleep 100"], cwd=ROOT)
    pids = escaped(file)
    parent.kill()
    parent.wait()
    eventually(lambda: gone(pids))


def test_processes_of_a_killed_reaper_are_killed_by_the_agent(tmp_path):
    file = tmp_path / "pids"
    code = (
        PARENT.replace("supervisor.start", "supervisor.adopt(); supervisor.start", 1)
        + """
import signal, time
time.sleep(0.05)
while not os.path.exists(sys.argv[2]): time.sleep(0.01)
while len(open(sys.argv[2]).read().split()) < 4: time.sleep(0.01)
os.kill(supervisor._children["key"].process.pid, signal.SIGKILL)
while not supervisor.reap_children(): time.sleep(0.01)
print("all gone")
"""
    )
    command = [sys.executable, "-c", code, f"{escaping(file)}; sleep 100", str(file)]
    parent = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert "all gone" in parent.stdout, parent.stderr
    assert gone(escaped(file))


def test_a_reaper_that_was_stopped_and_reads_nothing_keeps_nothing_running(supervisor, tmp_path):
    file = tmp_path / "pids"
    start(supervisor, f"{escaping(file)}; sleep 100")
    pids = escaped(file)
    os.kill(supervisor._children["key"].process.pid, signal.SIGSTOP)
    supervisor.kill_child("key")
    assert end(supervisor).status < 0
    assert gone(pids)


def call(path: str, payload: object) -> dict:
    with tempfile.TemporaryFile() as channel:
        subprocess.run(
            [sys.executable, "-m", "controlplane.agent.processes.callable_child", path, "", str(channel.fileno())],
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
    assert json.loads(run_callable(path, "nan"))["error"]["code"] == code


@pytest.mark.parametrize("letter", ["x", "é", "\ud800"])
def test_an_output_at_its_size_limit_is_accepted_and_a_larger_one_names_both_sizes(letter):
    width = len(letter.encode(errors="surrogatepass"))
    most = (SIZE_LIMIT - len('{"a":[1,""]}')) // width
    at = json.loads(run_callable("json:loads", json.dumps({"a": [1, letter * most]})))
    assert at == {"output": {"a": [1, letter * most]}}
    beyond = json.loads(run_callable("json:loads", json.dumps({"a": [1, letter * (most + 1)]})))["error"]
    assert (beyond["code"], beyond["traceback"]) == ("OUTPUT_TOO_LARGE", "")
    assert str(SIZE_LIMIT) in beyond["message"]
    assert str(len('{"a":[1,""]}') + width * (most + 1)) in beyond["message"]


def test_the_reaper_knows_the_clock_of_the_fence():
    from controlplane.agent.processes import reaper

    assert abs(reaper.time.clock_gettime(reaper.CLOCK) - read_uptime()) < 1
    # Named, not imported: it starts in no time.
    assert Path(reaper.__file__).read_text().count("controlplane.agent") == 1
