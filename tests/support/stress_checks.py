"""Checks of executions after random faults, from the lines of their code and from the database."""

import itertools
from collections import defaultdict
from collections.abc import Iterator
from functools import partial

from tests.support.stress import Stress
from tests.support.written_lines import Ran, find_excesses, read_lines


def cost_of(name: str, ran: Ran) -> int:
    return int(ran.costs.get(name, 0))


def find_wrong_runs(one: Stress) -> Iterator[str]:
    """Return what ran twice, too early, or beside something that excludes it."""
    twice = "select job_id from jobs_attempt where state = 'COMPLETED' group by job_id having count(*) > 1"
    yield from (f"accepted twice: {row['job_id']}" for row in one.query(twice))
    attempts = read_lines(one.lines)
    ran: dict[str, list[Ran]] = defaultdict(list)
    for attempt in attempts.values():
        ran[attempt.job].append(attempt)
    for job, of_job in ran.items():
        yield from (f"{job}: {found}" for found in find_excesses(of_job, lambda ran: 1, lambda at: 1))
    needs = "select step_id::text as job, depends_on_id::text as needed from jobs_stepdependency"
    for row in one.query(needs):
        for early, late in ((early, late) for early in ran[row["job"]] for late in ran[row["needed"]]):
            if early.began < late.last:
                yield f"began before its dependency had ended: {early} {late}"
    costs = {cost for attempt in attempts.values() for cost in attempt.costs}
    for cost in (cost for cost in costs if cost.startswith("loop ")):
        found = find_excesses(attempts.values(), partial(cost_of, cost), lambda at: 2)
        yield from (f"{cost}: {problem}" for problem in found)
    limited = [[a for a in attempts.values() if cost in a.costs] for cost in costs if cost.startswith("limited ")]
    spans = sorted((min(a.began for a in of_one), max(a.last for a in of_one)) for of_one in limited)
    for (_, end), (begin, _) in itertools.pairwise(spans):
        if begin < end:
            yield f"two executions held the same slot from {begin} to {end}"


def find_late_waits(one: Stress) -> Iterator[str]:
    """Return waits for a time that more than one whole tick left open. A tick passes trees that others have locked."""
    ticks = [tuple(map(float, line.split())) for line in one.ticks.read_text().splitlines()]
    waits = """select id, step, extract(epoch from wait_due_at)::float8 as due,
                      extract(epoch from finished_at)::float8 as ended
                 from jobs_workerjob where wait ->> 'what' = 'time' and state = 'COMPLETED'"""
    for row in one.query(waits):
        missed = [(begin, end) for begin, end in ticks if row["due"] < begin and end < row["ended"]]
        if len(missed) > 1:
            yield f"{row} was left open by {missed}"
