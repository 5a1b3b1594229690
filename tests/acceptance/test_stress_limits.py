"""Limits under random faults: the code itself writes down when it runs, and these lines are checked afterwards."""

import math
import sys
import time

import pytest

from tests.support.stress import CONCURRENCY, stress
from tests.support.written_lines import Changes, find_excesses, find_fast_starts, read_lines

pytestmark = [pytest.mark.acceptance, pytest.mark.exhaustive, pytest.mark.timeout(420)]

FAULTS = 60
"""Seconds of faults."""
WORK = {"type": "callable", "path": "stress_work:work"}
FIXED = {"one": {"running": 1}, "customer:*": {"running": 2}, "fair:*": {"running": 2, "fair": True}}
RATES = {"rate:*": {"starts": 3, "per_seconds": 2}}
CHANGED = {
    "moving": (1, 2, 4, None), "gpu": (2, 3, 6), "tag:large": (1, 3), "action:stress_work:work": (6, 10, None),
    "namespace:red": (1, 2),
}  # fmt: skip
KEYS = ["one", "customer:1", "customer:2", "fair:a", "fair:b", "fair:c", "rate:1", "rate:2", "moving", "gpu"]
PATTERNS = {key: f"{key.partition(':')[0]}:*" if ":" in key else key for key in KEYS}
QUOTA = {"max_waiting": 15, "submissions_per_minute": 40}
AGENTS = {
    "agent0": ("default", "--restart-strategy", "IMMEDIATELY", "--allow", "callable:stress_work", "--tags", "large"),
    "agent1": ("default", "--restart-strategy", "AFTER_TERMINATION_GRACE_PERIOD", "--tags", "large"),
    "agent2": ("red", "--restart-strategy", "IMMEDIATELY", "--allow", "callable:stress_work", "--tags", "large"),
}  # fmt: skip
WAITING = """select id, namespace, state, parked_by, limits, required_tags from jobs_workerjob
              where finished_at is null"""

SUBMITTED = """select extract(epoch from created_at)::float8 as at from jobs_workerjob
                where namespace = 'red' and resubmission_of_id is null"""
REPAIRS = "select labels, number from liveness_tally where name = 'limit_repairs'"


class Acts:
    """Calls of clients and operators while the faults happen."""

    def __init__(self, one):
        self.one, self.changes, self.jobs, self.accepted = one, Changes(), [], 0

    def change_rule(self, chance):
        pattern = chance.choice(list(CHANGED))
        self.set_rule(pattern, chance.choice(CHANGED[pattern]))

    def set_rule(self, pattern, running):
        def change():
            if running is None:
                assert self.one.surely("DELETE", f"/limits/{pattern}", "operator")[0] in (204, 404)
            else:
                body = {"running": running, **(QUOTA if pattern == "namespace:red" else {})}
                assert self.one.surely("PUT", f"/limits/{pattern}", "operator", body)[0] in (200, 201)

        self.changes.set(pattern, math.inf if running is None else running, change, time.time)

    def hold(self, chance):
        of = chance.choice([
            {"tag": "large"}, {"limit": chance.choice(KEYS)}, {"action": "stress_work:work"}, {"namespace": "red"},
        ])  # fmt: skip
        body = {"of": of, "mode": chance.choice(["pause", "refuse"]), "duration_seconds": 60, "note": "stress"}
        status, hold = self.one.call("POST", "/holds", "operator", body)
        self.one.is_over.wait(3 * chance.random())
        if status == 201 and chance.random() < 0.8:
            self.one.call("DELETE", f"/holds/{hold['id']}", "operator")

    def costs(self, chance):
        limits = dict.fromkeys(chance.sample(KEYS, chance.choice([1, 1, 2, 3])), 1)
        if "gpu" in limits:
            limits["gpu"] = chance.choice([1, 2])
        return limits

    def submit(self, chance):
        namespace = chance.choice(["", "", "red "])
        if len(self.jobs) - self.ended() > 40:
            return
        limits, slots = self.costs(chance), chance.choice([1, 1, 1, 2])
        tags = ["large"] if chance.random() < 0.3 else []
        costs = {**limits, "tag:large": len(tags), "namespace:red": int(namespace == "red "), "slots": slots}
        body = {
            "action": WORK, "limits": limits, "worker_slots": slots, "tags": tags, "unmatched": "wait",
            "payload": {"seconds": 0.1 + 0.7 * chance.random(), "fails": chance.random() < 0.1, "costs": costs},
            "max_retries": 1, "priority": chance.choice([0, 0, 0, 5]),
        }  # fmt: skip
        status, job = self.one.call("POST", "/jobs", f"{namespace}client", body)
        if status == 201:
            self.jobs.append((job["id"], costs))
        else:
            assert status == 0 or job["code"] in ("on_hold", "quota_exceeded"), (status, job)

    def ended(self):
        try:
            [row] = self.one.query("select count(*) from jobs_workerjob where finished_at is not null")
        except Exception:
            return 0
        return row["count"]

    def change_job(self, chance):
        if not self.jobs:
            return
        job, costs = chance.choice(self.jobs[-40:])
        match chance.choice(["priority", "limits", "cancel", "resubmit"]):
            case "priority":
                self.one.call("PATCH", f"/jobs/{job}", "operator", {"priority": chance.randint(0, 5)})
            case "limits":
                limits = self.costs(chance)
                others = {name: costs[name] for name in ("tag:large", "namespace:red", "slots")}
                payload = {"seconds": 0.3, "costs": {**limits, **others}}
                self.one.call("PATCH", f"/jobs/{job}", "operator", {"limits": limits, "payload": payload})
            case "cancel":
                self.one.call("POST", f"/jobs/{job}/cancel", "operator", {"note": "stress"})
            case "resubmit":
                status, again = self.one.call("POST", f"/jobs/{job}/resubmit", "operator", {"note": "stress"})
                if status == 201:
                    self.jobs.append((again["id"], costs))


def placements(one, jobs):
    """Return each job with the reason why it waits, as the API shows it, unless it does not wait any more."""
    roles = {"default": "operator", "red": "red operator"}
    answers = [one.surely("GET", f"/jobs/{row['id']}/placement", roles[row["namespace"]]) for row in jobs]
    return [(row, body) for row, (status, body) in zip(jobs, answers, strict=True) if status != 409]


def list_unexplained(one):
    """Return the jobs that wait for no reason that the API shows."""
    names = ("waiting_for", "flags", "full", "ahead", "fails_in")
    waiting = placements(one, one.query(f"{WAITING} and state = 'PENDING'"))
    return [(row, body) for row, body in waiting if not any(body.get(name) for name in names)]


def test_no_limit_is_exceeded_and_nothing_is_left_whatever_fails(tmp_path):
    with stress(tmp_path, AGENTS) as one:
        acts = Acts(one)
        for pattern, rule in {**FIXED, **RATES}.items():
            one.surely("PUT", f"/limits/{pattern}", "operator", rule)
        for pattern, values in CHANGED.items():
            acts.set_rule(pattern, values[0])
        pauses = {acts.submit: 0.1, acts.change_rule: 1.0, acts.hold: 4.0, acts.change_job: 0.5}
        one.run(pauses, FAULTS)

        # Nothing can start now, so everything that waits must show why.
        acts.set_rule("action:stress_work:work", 0)
        one.eventually(lambda: not list_unexplained(one), within=30, why=lambda: list_unexplained(one))

        for hold in one.surely("GET", "/holds", "operator")[1]["items"]:
            one.surely("DELETE", f"/holds/{hold['id']}", "operator")
        for pattern in CHANGED:
            acts.set_rule(pattern, 4)
        one.eventually(lambda: not one.query(WAITING), within=75, why=lambda: placements(one, one.query(WAITING)))
        one.eventually(lambda: not any(one.left_over().values()), within=30, why=one.left_over)
        for pattern in {**FIXED, **RATES, **CHANGED}:
            assert one.surely("GET", f"/limits/{pattern}", "operator")[1]["keys"] == []
        sys.stdout.write(f"{one.query(REPAIRS)}\n")
        assert [*find_problems(one, acts), *one.failures, *one.database_errors()] == []


def find_problems(one, acts):
    """Return the rules that were broken, by the lines of the code."""
    ran = read_lines(one.lines)
    claims = """select job_id::text, number, extract(epoch from claimed_at)::float8 as claimed from jobs_attempt"""
    for row in one.query(claims):
        if attempt := ran.get((row["job_id"], row["number"])):
            attempt.claimed = row["claimed"]
    attempts = list(ran.values())
    assert all(attempt.claimed for attempt in attempts)
    sys.stdout.write(f"{len(attempts)} attempts ran, faults: {one.done}\n")
    problems = {}
    for key in [*KEYS, "tag:large", "namespace:red"]:
        pattern = PATTERNS.get(key, key)
        fixed = {**FIXED, **RATES}.get(pattern)
        allowed = (
            (lambda at, pattern=pattern: acts.changes.most(pattern, at))
            if fixed is None
            else (lambda at, fixed=fixed: fixed.get("running", math.inf))
        )
        problems[key] = find_excesses(attempts, lambda ran, key=key: ran.costs.get(key, 0), allowed)
    action = "action:stress_work:work"
    problems[action] = find_excesses(attempts, lambda ran: 1, lambda at: acts.changes.most(action, at))
    for key in ("rate:1", "rate:2"):
        problems[f"{key} starts"] = find_fast_starts([a.claimed for a in attempts if key in a.costs], 3, 2)
    submitted = [row["at"] for row in one.query(SUBMITTED)]
    problems["submissions"] = find_fast_starts(submitted, QUOTA["submissions_per_minute"], 60, slack=5)
    for server in {attempt.server for attempt in attempts}:
        of_server = [attempt for attempt in attempts if attempt.server == server]
        problems[server] = find_excesses(of_server, lambda ran: ran.costs["slots"], lambda at: CONCURRENCY)
    for job in {attempt.job for attempt in attempts}:
        of_job = [attempt for attempt in attempts if attempt.job == job]
        problems[job] = find_excesses(of_job, lambda ran: 1, lambda at: 1)
    assert len(attempts) > 10, "too few ran: this proves nothing"
    return [f"{what}: {found[:3]}" for what, found in problems.items() if found]
