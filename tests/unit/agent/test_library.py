"""The agent as a library: the examples of docs/how-to/write-a-worker-in-python.md, run as they stand."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys

import pytest

from controlplane.agent import Heart, Worker, handler
from controlplane.agent.from_code.handlers import REGISTERED, definition_of
from controlplane.agent.processes.callable_child import run_callable
from tests.support.standin import ROOT, Refuse, eventually

WORKER, LOAD, SEEN = re.findall(
    r"```python\n(.*?)```", (ROOT / "docs/how-to/write-a-worker-in-python.md").read_text(), re.DOTALL
)


@pytest.fixture
def run(plane, tmp_path):
    """Run a program against the stand-in."""
    (tmp_path / "tmp").mkdir()
    names = {"RUNTIME": "run", "STATE": "state"}
    folders = {f"CONTROLPLANE_{name}_DIR": str(tmp_path / folder) for name, folder in names.items()}
    environment = {**os.environ, **folders, "TMPDIR": str(tmp_path / "tmp"), "PYTHONPATH": str(ROOT)}
    environment |= {"CONTROLPLANE_URL": plane.url, "CONTROLPLANE_TOKEN": "secret"}
    started = []

    def start(text: str) -> subprocess.Popen[bytes]:
        (tmp_path / "program.py").write_text(text)
        command = [sys.executable, str(tmp_path / "program.py")]
        started.append(subprocess.Popen(command, env=environment, cwd="/", stdout=subprocess.PIPE))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_five_lines_are_a_worker_whose_handlers_may_be_async(plane, run):
    attempt = plane.submit({"type": "handler", "name": "mail"}, {"to": "you"})
    program = run(WORKER)
    assert eventually(lambda: plane.final(attempt))["output"] == {"sent": "you"}
    registered = plane.calls[0][1]
    assert registered["name"] == "mails" and "handler:mail" in registered["tags"] and "script" not in registered["tags"]
    program.send_signal(signal.SIGTERM)
    assert program.wait(60) == 0


PROBED = """
import pathlib
from controlplane.agent import Worker

def fit():
    return pathlib.Path(__file__).with_name("fit").exists()

if __name__ == "__main__":
    raise SystemExit(Worker(name="probed", allow=["script"], probe=fit, probe_interval=0.2, probe_timeout=60).run())
"""


def test_a_worker_may_be_given_a_function_as_its_probe(plane, run, tmp_path):
    attempt = plane.submit("true")
    run(PROBED)
    eventually(lambda: "it returned False" in str([body for call, body in plane.calls if call == "heartbeat"][-1:]))
    assert plane.count("claims") == 0
    (tmp_path / "fit").touch()
    assert eventually(lambda: plane.final(attempt))["event"] == "COMPLETED"


def test_a_probe_is_a_function_of_a_module():
    with pytest.raises(ValueError, match=r"probe: .*<lambda> is not a top-level function of a module"):
        Worker(probe=lambda: True)


def test_a_heart_has_its_process_seen_until_it_ends(plane, run):
    program = run(SEEN.replace('print("seen")', "input()").replace("with", "import sys\nwith") + "sys.exit(7)\n")
    assert program.wait(60) == 1, "nobody answered input(), and the block was left with an error"
    assert (plane.calls[0][1]["name"], plane.calls[0][1]["type"]) == ("nightly", "SCHEDULER")
    assert plane.states()[-1] == "TERMINATED_GRACEFULLY"


def test_a_heart_that_was_purged_or_declared_dead_registers_again(plane):
    with Heart(plane.url, name="nightly", token="secret"):
        eventually(lambda: "RUNNING" in plane.states())
        for code in ("server_unknown", "server_not_running"):
            before = len(plane.registrations)

            def refuse(body, code=code, before=before):
                if len(plane.registrations) == before:
                    raise Refuse(410 if code == "server_unknown" else 409, code)

            plane.script["heartbeat"] = refuse
            eventually(lambda before=before: len(plane.registrations) > before)
    assert plane.states()[-1] == "TERMINATED_GRACEFULLY"


def test_a_heart_that_nobody_answers_holds_nobody_up(plane):
    plane.down = True
    with Heart(plane.url, name="nightly", token="secret"):
        pass


def test_the_code_of_a_job_runs_outside_of_one_too(tmp_path, monkeypatch):
    (tmp_path / "loading.py").write_text(LOAD)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert run_callable("loading:load", {"rows": 3}) == '{"output":null}'


def test_a_handler_is_a_function_of_a_module():
    assert definition_of("mail", run_callable) == "mail=controlplane.agent.processes.callable_child:run_callable"
    with pytest.raises(ValueError, match="is not a top-level function of a module"):
        handler("local")(lambda payload: payload)
    assert "local" not in REGISTERED
