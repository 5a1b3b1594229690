"""Executions on real processes: the example of docs/how-to as it stands there, and a schedule."""

import json
import re
import signal

import pytest

from tests.support.processes import ROOT, Fleet, eventually, fleet

pytestmark = pytest.mark.acceptance


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    """Start a control plane with two workers."""
    folder = tmp_path_factory.mktemp("executions")
    with fleet(folder, CELERY_BROKER_URL="filesystem://") as one:
        url = one.web()
        one.executor("executor", "--beat")
        for name in ("worker-1", "worker-2", "worker-3"):
            one.agent(name, url)
        yield one, f"{url}/api/v1"


def example(start: str) -> dict:
    """Return the JSON of the documentation that begins like this."""
    text = "".join(
        (ROOT / f"docs/how-to/{page}.md").read_text() for page in ("run-several-steps", "schedule-executions")
    )
    match = re.search(re.escape(start) + r".*?\n(?=JSON\n|'\n|```)", text, re.DOTALL)
    assert match, f"docs/how-to has no {start}"
    return json.loads(match[0].rstrip().removesuffix("'"))


def server_lines(plane: Fleet, api: str, run: str, token: str) -> list[str]:
    lines = plane.call("GET", f"{api}/executions/{run}/steps/_server/logs", token)["items"]
    return [line["code"] for line in lines]


def test_the_example_of_the_docs_survives_a_dead_worker_and_calls_its_hook(plane):
    one, api = plane
    client = one.token("client")
    run = one.call("POST", f"{api}/executions", client, example('{"name": "nightly"'))["id"]

    def steps():
        execution = one.call("GET", f"{api}/executions/{run}", client)
        return {step["key"]: step for step in [*execution["steps"], *execution["on_error"]]}

    holder = eventually(lambda: steps()["extract"]["state"] == "RUNNING" and steps()["extract"]["server"])
    one.processes[holder["name"]].send_signal(signal.SIGKILL)
    eventually(lambda: steps()["tell"]["state"] == "COMPLETED", why="the hook has run")
    ends = {key: step["state"] for key, step in steps().items()}
    assert ends == {"extract": "COMPLETED", "check": "FAILED", "load": "SKIPPED", "tell": "COMPLETED"}
    assert steps()["extract"]["output"]["stdout"].strip() == "try 2"
    execution = one.call("GET", f"{api}/executions/{run}", client)
    assert (execution["state"], execution["error"]["code"]) == ("FAILED", "STEPS_FAILED")
    assert server_lines(one, api, run, client) == ["JOB_RESUBMITTED", "STEP_SKIPPED"]
    lines = one.call("GET", f"{api}/executions/{run}/steps/tell/logs", client)["items"]
    payload = json.loads("".join(line["line"] for line in lines))
    assert [failed["step"] for failed in payload["failed"]] == ["check"]
    assert payload["execution"]["id"] == run


def test_a_schedule_starts_an_execution_when_its_evaluation_fires(plane):
    one, api = plane
    operator = one.token("operator")
    body = example('{"name": "every minute"') | {"interval_seconds": 2}
    del body["cron"], body["timezone"]
    trigger = one.call("POST", f"{api}/triggers", operator, body)["id"]

    def runs():
        executions = one.call("GET", f"{api}/executions?trigger={trigger}&state=COMPLETED", operator)["items"]
        return len(executions) >= 2 and executions

    first = eventually(runs, within=180, why="two executions have run")[-1]
    execution = one.call("GET", f"{api}/executions/{first['id']}", operator)
    assert execution["inputs"] == {"day": "today"}
    assert json.loads(execution["steps"][0]["output"]["stdout"]) == {"day": "today"}
    slots = one.call("GET", f"{api}/triggers/{trigger}", operator)["slots"]
    assert len({slot["slot"] for slot in slots}) == len(slots)


def test_a_running_step_of_a_cancelled_execution_is_stopped_by_its_worker(plane):
    one, api = plane
    client = one.token("client")
    sleep = {"type": "script", "command": "sleep 600"}
    inner = {"type": "execution", "name": "inner", "steps": [{"key": "x", "action": sleep}]}
    body = {"name": "long", "steps": [{"key": "a", "action": sleep}, {"key": "child", "action": inner}]}
    run = one.call("POST", f"{api}/executions", client, body)["id"]

    def states(id):
        return {step["state"] for step in one.call("GET", f"{api}/executions/{id}", client)["steps"]}

    child = one.call("GET", f"{api}/executions/{run}", client)["steps"][1]["child"]
    eventually(lambda: states(run) == states(child) == {"RUNNING"})
    one.call("POST", f"{api}/executions/{run}/cancel", client, {})
    eventually(lambda: one.call("GET", f"{api}/executions/{run}", client)["state"] == "CANCELLED")
    assert states(run) == states(child) == {"CANCELLED"}
