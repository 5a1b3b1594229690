"""Executions under random faults: data, loops, waits, signals, answers, open executions, limits and notifications."""

import json
import sys
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from tests.support.receiver import listening
from tests.support.stress import stress
from tests.support.stress_checks import find_late_waits, find_wrong_runs

pytestmark = [pytest.mark.acceptance, pytest.mark.exhaustive, pytest.mark.timeout(420)]

FAULTS = 60
"""Seconds of faults."""
MOST_OPEN = 12
WORK = {"type": "callable", "path": "stress_work:work"}
AGENTS = {
    "agent0": ("default", "--restart-strategy", "IMMEDIATELY", "--allow", "callable:stress_work"),
    "agent1": ("default", "--restart-strategy", "AFTER_TERMINATION_GRACE_PERIOD"),
    "agent2": ("default", "--restart-strategy", "IMMEDIATELY", "--allow", "callable:stress_work"),
}
OPEN = "select id, name, state, parked_by, sealed from jobs_execution where state = 'RUNNING'"
TWO = ThreadPoolExecutor(2)


def work(key, *needs, output=None, costs=(), seconds=0.2, **fields):
    payload = {"seconds": seconds, "costs": dict.fromkeys(costs, 1), "output": output, **fields.pop("payload", {})}
    return {"key": key, "action": WORK, "depends_on": list(needs), "payload": payload, **fields}


def wait(key, *needs, kind="wait", **action):
    return {"key": key, "depends_on": list(needs), "action": {"type": kind, **action}}


class Acts:
    """Calls of clients and operators while the faults happen."""

    def __init__(self, one, hook):
        self.one, self.hook = one, hook
        self.number = 0
        self.expected, self.notified, self.problems = {}, set(), []
        self.signals, self.answers = [], []

    def begin(self, chance):
        """Start a random execution, unless enough of them run."""
        if len(self.read_open()) >= MOST_OPEN:
            return
        self.number += 1
        kind = chance.choice(
            [self.data, self.loop, self.times, self.signal, self.approval, self.open_one, self.limited]
        )
        name = f"{kind.__name__}-{self.number}"
        body = {"name": name, "key": name, **kind(name, chance)}
        if chance.random() < 0.4:
            body["notify"] = [{"url": self.hook}]
        status, execution = self.one.surely("POST", "/executions", "client", body)
        if status not in (200, 201):
            self.problems.append(f"{body}: {status} {execution}")
        elif body.get("notify"):
            self.notified.add(execution["id"])
        if kind == self.signal:  # a signal that is sent before its execution begins does not count
            self.signals.append(name)
        if kind == self.open_one:
            self.grow(execution["id"], chance)

    def read_open(self):
        try:
            return self.one.query(OPEN)
        except psycopg.Error:
            return [None] * MOST_OPEN

    def data(self, name, chance):
        rows = chance.randint(0, 9)
        steps = [
            work("a", output={"rows": rows}),
            work("b", "a", payload={"output": {"from": "$.steps.a.output.rows"}}),
            work("c", "a", when="$.steps.a.output.rows > 4", run_if_skipped=True),
            wait("d", "b", "c", kind="execution", name=f"child of {name}", steps=[work("x")]),
        ]  # fmt: skip
        self.expected[name] = {"rows": rows}
        return {"steps": steps, "outputs": {"rows": {"from": "$.steps.b.output"}}}

    def loop(self, name, chance):
        numbers = [chance.randint(0, 99) for _ in range(chance.randint(1, 5))]
        items = work("items", costs=[f"loop {name}"], for_each="$.inputs.numbers", max_parallel=2, max_retries=2,
                     payload={"output": {"from": "$.item"}})  # fmt: skip
        self.expected[name] = {"numbers": numbers}
        outputs = {"numbers": {"from": "$.steps.items.output"}}
        return {"steps": [items], "inputs": {"numbers": numbers}, "outputs": outputs}

    def times(self, name, chance):
        return {"steps": [wait("w", seconds=chance.uniform(0, 4)), work("a", "w"), wait("v", "a", seconds=1)]}

    def signal(self, name, chance):
        self.expected[name] = {"body": name}
        return {"steps": [work("a"), wait("w", "a", signal=name)], "outputs": {"body": {"from": "$.steps.w.output"}}}

    def approval(self, name, chance):
        return {"steps": [work("a"), wait("q", "a", kind="approval", message="Go on?"), work("b", "q")],
                "outputs": {"answer": {"from": "$.steps.q.output"}}}  # fmt: skip

    def open_one(self, name, chance):
        return {"sealed": False, "steps": [work("s0")]}

    def limited(self, name, chance):
        costs = [f"limited {name}"]
        return {"limits": ["exclusive"], "steps": [work("a", costs=costs), work("b", "a", costs=costs)]}

    def grow(self, execution, chance):
        """Add steps to an open execution, each part twice at the same moment, and seal it."""
        for n in range(1, chance.randint(2, 4)):
            body = {"steps": [work(f"s{n}", f"s{n - 1}")]}
            self.twice("POST", f"/executions/{execution}/steps", "client", body)
            self.one.surely("POST", f"/executions/{execution}/steps", "client", body)
        self.twice("POST", f"/executions/{execution}/seal", "client", {})
        self.one.surely("POST", f"/executions/{execution}/seal", "client", {})

    def twice(self, *call, **headers):
        calls = [TWO.submit(self.one.call, *call, **headers) for _ in range(2)]
        return [call.result() for call in calls]

    def send(self, chance):
        """Send a signal twice at the same moment, perhaps before its step waits."""
        if self.signals:
            name = self.signals.pop(0)
            headers = {"Idempotency-Key": name}
            answers = self.twice("POST", f"/signals/{name}", "client", name, **headers)
            answers.append(self.one.surely("POST", f"/signals/{name}", "client", name, **headers))
            known = [answer for answer in answers if answer[0]]
            if len({signal.get("id") for _, signal in known}) != 1 or sum(status == 201 for status, _ in known) > 1:
                self.problems.append(f"signal {name}: {answers}")

    def answer(self, chance):
        """Answer a question twice at the same moment, with different choices."""
        try:
            waiting = self.one.query("select execution_id, step from jobs_workerjob where state = 'RUNNING'"
                                     " and wait ->> 'what' = 'answer' limit 1")  # fmt: skip
        except psycopg.Error:
            return
        for step in waiting:
            path = f"/executions/{step['execution_id']}/steps/{step['step']}/answer"
            bodies = [{"choice": choice, "note": "stress"} for choice in ("approve", "reject")]
            answers = list(TWO.map(self.one.call, ["POST"] * 2, [path] * 2, ["operator"] * 2, bodies))
            self.answers.append((step["execution_id"], answers))
            if sum(200 <= status < 300 for status, _ in answers) > 1:
                self.problems.append(f"answered twice: {answers}")
            if any(
                status >= 400 and body["code"] not in ("already_answered", "not_waiting") for status, body in answers
            ):
                self.problems.append(f"answer refused: {answers}")

    def meddle(self, chance):
        """Cancel, hold or rerun an execution."""
        runs = [row for row in self.read_open() if row]
        if not runs:
            return
        run = chance.choice(runs)["id"]
        match chance.choice(["cancel", "hold", "hold", "rule"]):
            case "cancel":
                self.one.call("POST", f"/executions/{run}/cancel", "operator", {"note": "stress"})
            case "hold":
                body = {"of": {"execution": str(run)}, "duration_seconds": 60, "note": "stress"}
                status, hold = self.one.call("POST", "/holds", "operator", body)
                self.one.is_over.wait(2 * chance.random())
                if status == 201:
                    self.one.surely("DELETE", f"/holds/{hold['id']}", "operator")
            case "rule":
                self.one.call("PUT", "/limits/exclusive", "operator", {"running": 1, "note": str(chance.random())})


def test_every_execution_ends_right_whatever_fails(tmp_path):
    with listening() as receiver, stress(tmp_path, AGENTS, JOBS_NOTIFY_ALLOW_PRIVATE="true") as one:
        one.surely("PUT", "/limits/exclusive", "operator", {"running": 1})
        acts = Acts(one, receiver.url)
        one.run({acts.begin: 0.5, acts.send: 1.0, acts.answer: 0.7, acts.meddle: 4.0}, FAULTS)
        for hold in one.surely("GET", "/holds", "operator")[1]["items"]:
            one.surely("DELETE", f"/holds/{hold['id']}", "operator")

        def have_ended():
            acts.send(one.chance)
            acts.answer(one.chance)
            return not one.query(OPEN)

        one.eventually(have_ended, within=75, why=lambda: describe_open(one))
        one.eventually(lambda: not any(one.left_over().values()), within=30, why=one.left_over)
        ends = {str(row["id"]): row["state"] for row in one.query("select id, state from jobs_execution")}
        one.eventually(
            lambda: acts.notified <= sent(receiver).keys() | leased(one), within=30, why="the ends are notified"
        )
        sys.stdout.write(f"{Counter(ends.values())}, faults: {one.done}\n")
        problems = [
            *acts.problems, *one.failures, *one.database_errors(), *find_wrong_outputs(one, acts),
            *find_wrong_runs(one), *find_late_waits(one),
        ]  # fmt: skip
        for execution, messages in sent(receiver).items():
            if messages != {(ends[execution], next(iter(messages))[1])}:
                problems.append(f"{execution} is {ends[execution]}: {messages}")
        assert problems == []
        assert Counter(ends.values())["COMPLETED"] >= 5, "too few ended: this proves nothing"


def describe_open(one):
    """Return what the API shows about executions that have not ended."""
    return [one.surely("GET", f"/executions/{row['id']}", "operator")[1] for row in one.query(OPEN)]


def sent(receiver):
    """Return the state and the id of each message, by execution. A repeated message has the same id."""
    found = defaultdict(set)
    for request in list(receiver.got):
        data = json.loads(request.body)["data"]
        found[data["id"]].add((data["state"], request.headers["webhook-id"]))
    return found


def leased(one):
    """Return the executions whose message is sent again later, because its sender was killed."""
    rows = one.query("select payload -> 'data' ->> 'id' as id from jobs_alertmessage"
                     " where next_try_at is not null and tries > 0")  # fmt: skip
    return {row["id"] for row in rows}


def find_wrong_outputs(one, acts):
    completed = "select id::text, name, outputs, root_id = id as is_root from jobs_execution where state = 'COMPLETED'"
    winners = {str(id): body for id, answers in acts.answers for status, body in answers if 200 <= status < 300}
    for row in one.query(completed):
        if row["is_root"] and row["name"] in acts.expected and row["outputs"] != acts.expected[row["name"]]:
            yield f"{row['name']}: {row['outputs']} instead of {acts.expected[row['name']]}"
        if row["id"] in winners and row["outputs"]["answer"]["choice"] != "approve":
            yield f"{row['name']}: {row['outputs']}"
