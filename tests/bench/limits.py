"""Cost of jobs with limits: submission, claim, start and end in lists of a hundred, against jobs without limits."""

from collections.abc import Callable
from itertools import count
from pathlib import Path

from jobs.models import Attempt, WorkerJob
from jobs.services import claiming, limit_rules, reporting, submission
from jobs.services.reports import Report, ReportEvent
from liveness.models import ApiToken
from liveness.services import tokens
from tests.bench.cost import Cost
from tests.bench.database import begin, settle_down
from tests.bench.rows import Row, Step

LISTS, AT_ONCE, ROUNDS, KEYS = 40, 100, 3, 1000
SCRIPT = {"type": "script", "runner": "local", "command": "true"}

Keys = Callable[[int], list[str]]
"""Keys of the job with a number."""


def limits(data_dir: Path, step: Step) -> list[Row]:
    """Submit and run jobs with 1,000 limited keys, one hot key, and 1,000 tenants that take turns."""
    kinds: dict[str, tuple[Keys, dict[str, object]]] = {
        "without": (lambda number: [], {}),
        "limits, 1,000 keys": (lambda number: [f"tenant:{number % KEYS}"], {"running": 1_000_000}),
        "limits, one hot key": (lambda number: ["tenant:1"], {"running": 1_000_000}),
        "limits, fair rule": (lambda number: [f"tenant:{number % KEYS}"], {"fair": True}),
    }
    costs = {name: Cost() for name in kinds}
    for _ in range(ROUNDS):
        for name, (keys, rule) in kinds.items():
            drain(costs[name], keys, rule)
            step()
    against = costs.pop("without").as_dict()["cpu_us"]
    return [
        Row(
            name,
            cost.as_dict()["cpu_us"],
            "µs",
            against,
            "the same jobs without limits",
            "≤ 2" if name == "limits, fair rule" else "≤ 1.5",
            cost.as_dict(),
        )
        for name, cost in costs.items()
    ]


def drain(cost: Cost, keys: Keys, rule: dict[str, object]) -> None:
    """Submit and run some lists of jobs, and add what they cost."""
    ((_, server_token),) = begin(1)
    if rule:
        limit_rules.set_limit("default", "tenant:*", {**rule, "note": ""}, "bench")
    settle_down()
    owner, server = ApiToken.objects.get(name="bench client"), tokens.read_server_token(server_token)
    numbers = count()
    with cost.measured():
        for _ in range(LISTS):
            jobs = [{"action": SCRIPT, **with_limits(keys(next(numbers)))} for _ in range(AT_ONCE)]
            submission.submit_jobs(owner, jobs)
            attempts = claiming.claim_jobs(server, AT_ONCE)[0]
            for event in (ReportEvent.STARTED, ReportEvent.COMPLETED):
                reporting.record_reports(server, [Report(attempt.id, event) for attempt in attempts])
    cost.units += LISTS * AT_ONCE
    assert WorkerJob.objects.filter(state="COMPLETED").count() == Attempt.objects.count() == LISTS * AT_ONCE


def with_limits(keys: list[str]) -> dict[str, object]:
    return {"limits": dict.fromkeys(keys, 1)} if keys else {}
