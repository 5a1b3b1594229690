"""A loop on real processes whose workers are killed: list files, convert each, sum, ask a person, publish."""

import itertools

import pytest

from tests.support.processes import ROOT, eventually, fleet

pytestmark = pytest.mark.acceptance

WORK = """
import os, time

from controlplane.agent import context


def list_files(_):
    return {"files": [{"name": f"file-{n}", "size": n} for n in range(9)]}


def convert(payload):
    for _ in range(20):
        with open(payload["notes"], "a") as file:
            file.write(f"{time.monotonic()} {payload['index']} {context.attempt}\\n")
        time.sleep(0.05)
    return payload["size"]


def add_up(payload):
    return {"total": sum(payload["sizes"])}


def publish(payload):
    return payload
"""
AT_ONCE = 3


def call(name):
    return {"type": "callable", "path": f"conversion:{name}"}


def steps(notes):
    total = {"from": "$.steps.sum.output.total"}
    return [
        {"key": "list", "action": call("list_files")},
        {"key": "convert", "depends_on": ["list"], "action": call("convert"), "for_each": "$.steps.list.output.files",
         "max_parallel": AT_ONCE, "payload": {"notes": notes, "size": {"from": "$.item.size"}}},
        {"key": "sum", "depends_on": ["convert"], "action": call("add_up"),
         "payload": {"sizes": {"from": "$.steps.convert.output"}}},
        {"key": "approve", "depends_on": ["sum"], "when": "$.steps.sum.output.total > 0",
         "action": {"type": "approval", "message": {"from": "$.inputs.question"}}},
        {"key": "publish", "depends_on": ["approve"], "action": call("publish"),
         "payload": {"total": total, "by": {"from": "$.steps.approve.output.by"}}},
    ]  # fmt: skip


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    """Start a control plane with three workers."""
    folder = tmp_path_factory.mktemp("loops")
    (folder / "conversion.py").write_text(WORK)
    with fleet(folder, CELERY_BROKER_URL="filesystem://", PYTHONPATH=f"{ROOT}:{folder}") as one:
        url = one.web()
        one.executor("executor", "--beat")
        for n in range(3):
            one.agent(f"worker-{n}", url, "--concurrency", "2")
        yield one, url


def most_at_once(lines):
    """Return the largest number of attempts that ran at the same time, by what their code wrote."""
    ran = {}
    for at, *attempt in lines:
        ran.setdefault(tuple(attempt), []).append(float(at))
    changes = sorted(itertools.chain.from_iterable([(min(times), 1), (max(times), -1)] for times in ran.values()))
    return max(itertools.accumulate(change for _, change in changes))


def test_a_loop_survives_dead_workers_and_never_runs_too_many_items(plane):
    one, url = plane
    client, operator = one.token("client"), one.token("operator")
    notes = one.folder / "notes"
    body = {"name": "conversion", "inputs": {"question": "Publish?"}, "steps": steps(str(notes))}
    run = one.call("POST", f"{url}/api/v1/executions", client, body)["id"]

    def step(key):
        execution = one.call("GET", f"{url}/api/v1/executions/{run}", client)
        return next(step for step in execution["steps"] if step["key"] == key)

    def holders():
        child = step("convert")["child"]
        items = one.call("GET", f"{url}/api/v1/executions/{child}", client)["steps"] if child else []
        return [item["server"]["name"] for item in items if item["state"] == "RUNNING" and item["server"]]

    killed = []
    for n in range(2):
        victim = eventually(
            lambda: next((name for name in holders() if name not in killed), None), why="a worker runs an item"
        )
        one.kill(victim)
        killed.append(victim)
        one.agent(f"heir-{n}", url, "--concurrency", "2")
    eventually(lambda: step("approve")["waiting_for"], why="the approval waits")
    converted = step("convert")
    assert (converted["output"], converted["progress"]) == (list(range(9)), {"total": 9, "done": 9, "failed": 0})
    assert step("sum")["output"] == {"total": 36}
    assert step("publish")["state"] == "BLOCKED"
    answer = {"choice": "approve", "values": {}, "note": "looks right"}
    one.call("POST", f"{url}/api/v1/executions/{run}/steps/approve/answer", operator, answer)
    published = eventually(lambda: step("publish")["state"] == "COMPLETED" and step("publish"), why="it is published")
    assert published["output"]["total"] == 36
    assert one.call("GET", f"{url}/api/v1/executions/{run}", client)["state"] == "COMPLETED"

    lines = [line.split() for line in notes.read_text().splitlines()]
    assert 1 < most_at_once(lines) <= AT_ONCE
    # A worker may have died before the code of its item wrote a line.
    ran = {tuple(line[1:]) for line in lines}
    assert {index for index, _ in ran} == set(map(str, range(9)))
    assert any(attempt != "1" for _, attempt in ran), "lost items ran again"


def test_an_empty_list_publishes_nothing(plane):
    one, url = plane
    client = one.token("client")
    inputs = {"question": "Publish?", "files": []}
    body = {"name": "conversion", "inputs": inputs, "steps": steps("unused")}
    body["steps"][1] |= {"for_each": "$.inputs.files"}
    run = one.call("POST", f"{url}/api/v1/executions", client, body)["id"]

    def read():
        return one.call("GET", f"{url}/api/v1/executions/{run}", client)

    eventually(lambda: read()["state"] == "COMPLETED", why="the execution has ended")
    ends = {step["key"]: step["state"] for step in read()["steps"]}
    assert ends == {
        "list": "COMPLETED", "convert": "COMPLETED", "sum": "COMPLETED", "approve": "SKIPPED", "publish": "SKIPPED",
    }  # fmt: skip
