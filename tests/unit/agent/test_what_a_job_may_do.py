"""Code that means no good to its agent: strange results, processes that slip away, a look at what is not its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from controlplane.agent.from_code.outcomes import DEPTH_LIMIT, TooDeep, parse, report_of
from controlplane.agent.limits import RESULT_KEPT, SIZE_LIMIT
from controlplane.agent.processes import environment, folder
from controlplane.agent.processes.callable_child import run_callable
from tests.support.escape import escaped, escaping, gone
from tests.support.standin import ROOT, eventually

STRANGE = """
import os, sys
def deep(levels):
    made = 1
    for _ in range(levels):
        made = [made]
    return made
def raw(data):
    os.write(int(sys.argv[3]), data.encode())
    os._exit(0)
def endless(_):
    file = os.fdopen(int(sys.argv[3]), "wb")
    file.truncate(20_000_000_000)
    file.flush()
    os._exit(0)
class Evil(dict):
    def items(self):
        raise KeyError("no")
class Sad(Exception):
    def __str__(self):
        raise ValueError("not even this")
def evil(_):
    return Evil(a=1)
def sad(_):
    raise Sad
"""


def nested(levels: int) -> str:
    return "[" * levels + "1" + "]" * levels


@pytest.fixture
def call(plane, agent, tmp_path):
    """Call a function of STRANGE on an agent. Afterwards the agent and another of its jobs still run."""
    (tmp_path / "strange.py").write_text(STRANGE)
    bystander = plane.submit(f"while [ ! -e {tmp_path}/go ]; do sleep 0.02; done")
    worker = agent()

    def call(name, payload=None):
        attempt = plane.submit({"type": "callable", "path": f"strange:{name}"}, payload)
        return eventually(lambda: plane.final(attempt), within=30)

    yield call
    (tmp_path / "go").touch()
    assert eventually(lambda: plane.final(bystander))["event"] == "COMPLETED"
    assert worker.process.poll() is None and "Unexpected error" not in worker.log


def test_no_result_however_deep_or_strange_costs_the_agent_or_another_job(call):
    assert parse(nested(DEPTH_LIMIT)) == call("deep", DEPTH_LIMIT)["output"]
    for levels in (DEPTH_LIMIT + 1, 480, 900, 100_000):
        assert call("deep", levels)["error"]["code"] == "OUTPUT_TOO_DEEP", levels
    for data in ("5", "null", "{}", "[]", '"x"', '{"error": 5}', '{"output": 1, "more": 2}', '{"error": []}'):
        assert call("raw", data)["error"]["code"] == "NO_RESULT", data
    assert call("raw", '{"output": ' + nested(50_000) + "}")["error"]["code"] == "OUTPUT_TOO_DEEP"
    assert call("raw", '{"error": {"code": 5, "message": ["x"], "traceback": {}}}')["error"]["code"] == "5"
    assert call("endless")["error"]["code"] == "OUTPUT_TOO_LARGE"
    assert call("evil")["error"]["code"] == "RESULT_NOT_JSON"
    assert call("sad")["error"]["code"] == "Sad"


def test_the_depth_of_an_output_is_limited_in_the_child_and_again_in_the_agent():
    at, beyond = nested(DEPTH_LIMIT), nested(DEPTH_LIMIT + 1)
    assert parse(at) == json.loads(run_callable("json:loads", at))["output"]
    assert json.loads(run_callable("json:loads", beyond))["error"]["code"] == "OUTPUT_TOO_DEEP"
    with pytest.raises(TooDeep):
        parse(beyond)
    assert report_of(f'{{"output": {at}}}'.encode())["event"] == "COMPLETED"
    assert report_of(f'{{"output": {beyond}}}'.encode())["error"]["code"] == "OUTPUT_TOO_DEEP"


def test_a_result_is_read_up_to_a_limit():
    assert RESULT_KEPT > 2 * SIZE_LIMIT, "an output at its limit, and an error in escapes, come through"
    assert report_of(b"x" * (RESULT_KEPT + 1))["error"]["code"] == "OUTPUT_TOO_LARGE"
    assert report_of(b"") is report_of(b'{"outp') is None
    long = json.dumps({"error": {"code": "c" * 1000, "message": "m" * 50_000, "traceback": "t" * 50_000}})
    assert len(json.dumps(report_of(long.encode()))) < 20_000


def test_code_that_escapes_by_setsid_nohup_or_a_double_fork_ends_with_the_timeout(plane, agent, tmp_path):
    agent()
    attempt = plane.submit(f"{escaping(tmp_path / 'pids')}; wait", timeout=5)
    pids = escaped(tmp_path / "pids")
    assert eventually(lambda: plane.final(attempt))["error"]["code"] == "STEP_TIMEOUT"
    assert gone(pids)


@pytest.mark.parametrize(("answer", "event"), [("cancel", "CANCELLED"), ("lost", None)])
def test_it_ends_with_the_cancellation_and_when_the_job_is_taken_away(plane, agent, tmp_path, answer, event):
    agent()
    attempt = plane.submit(f"{escaping(tmp_path / 'pids')}; wait")
    pids = escaped(tmp_path / "pids")
    running_when_stopped = []

    def heartbeat(body):
        if attempt in body["stopped"]:
            running_when_stopped.append(not gone(pids))

    plane.script["heartbeat"] = heartbeat
    plane.heartbeat[answer] = [attempt]
    if event:
        assert eventually(lambda: plane.final(attempt))["event"] == event
    else:
        eventually(lambda: running_when_stopped)
        assert not any(running_when_stopped)
    assert gone(pids)


@pytest.mark.parametrize("is_frozen", [False, True])
def test_it_ends_at_the_fence_of_an_agent_that_is_cut_off_or_frozen(plane, agent, tmp_path, is_frozen):
    worker = agent()
    plane.submit(f"{escaping(tmp_path / 'pids')}; wait")
    pids = escaped(tmp_path / "pids")
    plane.lower_fence(1.5)
    plane.down = True
    if is_frozen:
        worker.process.send_signal(signal.SIGSTOP)
    eventually(lambda: gone(pids))


def test_it_ends_with_a_killed_agent(plane, agent, tmp_path):
    worker = agent()
    plane.submit(f"{escaping(tmp_path / 'pids')}; wait")
    pids = escaped(tmp_path / "pids")
    worker.process.kill()
    eventually(lambda: gone(pids))


def test_jobs_get_the_environment_without_what_configures_a_control_plane():
    mine = {"PATH": "/bin", "HOME": "/", "JOB_X": "1", "AWS_REGION": "x", "DJANGO_SETTINGS_MODULE": "mine"}
    own = {
        *("DATABASE_URL", "DATABASE_POOL_SIZE", "SECRET_KEY", "CELERY_BROKER_URL", "ALLOWED_HOSTS"),
        *("CONTROLPLANE_TOKEN", "CONTROLPLANE_OPERATOR_TOKEN", "CONTROLPLANE_DATA_DIR", "LIVENESS_TIMEOUT", "JOBS_X"),
        *("ALERTS_WEBHOOK_SECRET", "ALERTS_EMAIL_URL"),
    }
    assert environment.for_jobs(mine | dict.fromkeys(own, "secret")) == mine
    assert environment.for_jobs({"DATABASE_URL": "of my app"}, {"DATABASE_URL"}) == {"DATABASE_URL": "of my app"}


def test_every_documented_variable_but_those_of_the_log_stays_with_the_control_plane():
    table = (
        (ROOT / "docs/reference/settings.md")
        .read_text()
        .partition("| environment | default | |")[2]
        .partition("\n\n")[0]
    )
    names = {name.strip("` ") for line in table.splitlines()[2:] for name in line.split("|")[1].split(",")}
    handed_on = set(environment.for_jobs(dict.fromkeys(names, "")))
    assert handed_on == {"LOG_LEVEL", "LOG_FORMAT"}, "name it in controlplane.agent.processes.environment.OWN"


def test_a_job_finds_no_token_in_the_environment_of_itself_its_reaper_or_its_agent(plane, agent):
    worker = agent("--pass-env", "SOME_OTHER, CONTROLPLANE_TOKEN")
    attempt = plane.submit("cat /proc/$$/environ /proc/$PPID/environ | tr '\\0' '\\n'; id")
    output = eventually(lambda: plane.final(attempt))["output"]["stdout"]
    assert "uid=" in output and "secret" not in output and "CONTROLPLANE_" not in output
    assert b"=secret" not in Path(f"/proc/{worker.process.pid}/environ").read_bytes()


def test_a_token_on_the_command_line_works_with_a_warning_and_one_in_a_file_without(plane, agent, tmp_path):
    warned = agent("--token", "secret")
    eventually(lambda: plane.count("heartbeat"))
    assert "--token is visible to" in warned.log
    (tmp_path / "token").write_text("secret")
    silent = agent("--name", "b", "--token-file", str(tmp_path / "token"))
    # By its name: the stand-in knows one server, so from then on they register in turns.
    eventually(lambda: any(call == "servers" and body["name"].startswith("b") for call, body in list(plane.calls)))
    assert "--token" not in silent.log


def test_an_agent_is_closed_to_other_processes_of_its_user():
    code = (
        "import ctypes; from controlplane.agent.processes import environment; environment.close();"
        "print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0), environment.TOKEN in environment.os.environ)"
    )
    env = {**os.environ, "CONTROLPLANE_TOKEN": "secret"}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "False"]


def test_the_next_agent_removes_the_folders_of_killed_ones_and_no_living_ones(plane, agent, tmp_path):
    place = tmp_path / "tmp"

    def folders():
        return {path.name for path in place.glob(f"{folder.PREFIX}*")}

    killed = agent()
    [old] = eventually(folders)
    eventually(lambda: plane.count("heartbeat"))
    (place / old / "file").touch()
    killed.process.kill()
    killed.process.wait()
    living = agent()
    [first] = eventually(lambda: folders() - {old})
    eventually(lambda: old not in folders())
    agent("--name", "another")
    eventually(lambda: len(folders()) == 2)
    assert first in folders()
    living.process.send_signal(signal.SIGTERM)
    living.exits()
    assert first not in folders()


MODULES = """
import os
from subprocess import run, Popen
from json import *
from allowed_other import helper
def own(payload):
    return payload
class Own:
    def __init__(self, payload): pass
"""


def test_an_allowed_module_does_not_make_what_it_imports_allowed(tmp_path, monkeypatch):
    (tmp_path / "allowed_one.py").write_text(MODULES)
    (tmp_path / "allowed_other.py").write_text("def helper(payload):\n    return 2\n")
    monkeypatch.syspath_prepend(tmp_path)
    for path in ("allowed_one:run", "allowed_one:Popen", "allowed_one:loads", "allowed_one:helper"):
        assert json.loads(run_callable(path, "1", "allowed_one,allowed_three"))["error"]["code"] == "NOT_ALLOWED", path
    assert "defined in subprocess" in run_callable("allowed_one:run", "1", "allowed_one")
    assert json.loads(run_callable("allowed_one:own", 1, "allowed_one")) == {"output": 1}
    assert json.loads(run_callable("allowed_one:helper", 1, "allowed_*")) == {"output": 2}
    assert json.loads(run_callable("allowed_one:loads", "1", "")) == {"output": 1}


def test_an_agent_hands_its_globs_to_the_child(plane, agent, tmp_path):
    (tmp_path / "mine.py").write_text("from os import getcwd\ndef here(_):\n    return 1\n")
    attempts = [plane.submit({"type": "callable", "path": f"mine:{name}"}) for name in ("here", "getcwd")]
    agent("--allow", "callable:mine")
    assert eventually(lambda: plane.final(attempts[0]))["output"] == 1
    assert eventually(lambda: plane.final(attempts[1]))["error"]["code"] == "NOT_ALLOWED"
