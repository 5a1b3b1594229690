"""Commands that no program can be started with are refused at their submission, wherever they are."""

import json
import os
import subprocess

import pytest

from controlplane.agent.limits import ARGUMENT_LIMIT, ARGUMENTS_LIMIT, VARIABLE_MARGIN
from controlplane.agent.runners.script import ScriptRunner
from tests.support.executions import SCRIPT

pytestmark = pytest.mark.django_db

LONG = "x" * ARGUMENT_LIMIT
IMAGE = {"image": "busybox"}


def script(**fields):
    return {"type": "script", "command": "true", **fields}


TOO_LONG = {
    "text": script(command=LONG + "x"),
    "text of several bytes a character": script(command="ü" * (ARGUMENT_LIMIT // 2 + 1)),
    "part of a list": script(command=["true", LONG + "x"]),
    "many parts": script(command=["x"] * (ARGUMENTS_LIMIT // 10 + 1)),
    "variable": script(env={"A": "ü" * 70_000}),
    "name of a variable": script(env={"A" * (ARGUMENT_LIMIT - VARIABLE_MARGIN + 1): ""}),
    "variable without a name": script(env={"": "x"}),
    "name with =": script(env={"A=B": "x"}),
    "container": {"type": "docker", **IMAGE, "command": LONG + "x"},
    "pod": {"type": "pod", **IMAGE, "command": ["true", LONG + "x"]},
    "script in a container": script(runner="docker", **IMAGE, command=LONG + "x"),
}


@pytest.mark.parametrize("what", TOO_LONG)
def test_it_is_refused_as_a_job_a_step_a_child_and_an_action_of_a_trigger(submit, api, what):
    action, operator = TOO_LONG[what], api("operator")
    execution = {"name": "e", "steps": [{"key": "a", "action": action}]}
    others = [{"key": "b", "action": SCRIPT}]
    trigger = {"name": "t", "interval_seconds": 60, "action": SCRIPT, "execution": execution}
    bodies = {
        "/jobs": [{"action": action}, [{"action": action}], {"action": {"type": "execution", **execution}}],
        "/executions": [execution, {"name": "e", "steps": others, "on_error": execution["steps"]}],
        "/triggers": [trigger, {**trigger, "action": action, "execution": {"name": "e", "steps": others}}],
    }
    for path, some in bodies.items():
        for body in some:
            if len(json.dumps(body, ensure_ascii=False).encode()) < 2**20:
                answer = operator.post(path, body)
                assert (answer.status_code, answer.json()["code"]) == (400, "invalid"), (path, answer.json())
                assert len(answer.content) < 2_000_000


LONGEST = {
    "text": script(command=": " + "x" * (ARGUMENT_LIMIT - 2)),
    "list": script(command=["true", LONG]),
    "variable": script(env={"A": "x" * 100_000}),
}


@pytest.mark.parametrize("action", LONGEST.values(), ids=LONGEST)
def test_the_longest_that_is_taken_can_be_started(submit, action):
    action = submit(action=action)["action"]
    runner = ScriptRunner()
    environment = runner.environment(action, dict(os.environ))
    assert subprocess.run(runner.command_line(action), env=environment, check=False).returncode == 0


def test_what_is_one_byte_longer_cannot_be_started():
    with pytest.raises(OSError, match="Argument list too long"):
        subprocess.run(["/bin/true", LONG + "x"], check=False)
