"""Checks of the lines that limited code wrote: what ran at the same time, and what it was allowed."""

import itertools
import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SLACK = 2.0
"""Seconds in which a claim may still see the rule before a change."""


@dataclass
class Ran:
    """Attempt whose code ran, at least from `began` to `last`, in seconds of the monotonic clock."""

    job: str
    number: int
    server: str
    began: float = math.inf
    last: float = -math.inf
    costs: dict[str, Any] = field(default_factory=dict)
    claimed: float = 0.0
    """Time of its claim, by the clock of the database."""


def read_lines(path: Path) -> dict[tuple[str, int], Ran]:
    """Return the attempts that wrote lines, by job and number."""
    attempts: dict[tuple[str, int], Ran] = {}
    for line in path.read_text().splitlines():
        at, job, number, server, what, *rest = line.split(" ", 5)
        ran = attempts.setdefault((job, int(number)), Ran(job, int(number), server))
        ran.began, ran.last = min(ran.began, float(at)), max(ran.last, float(at))
        if what == "begin":
            ran.costs = json.loads(rest[0])
    return attempts


def find_excesses(attempts: Iterable[Ran], cost: Callable[[Ran], int], allowed: Callable[[float], float]) -> list[str]:
    """Return the moments at which more ran than was allowed when the last one of them was claimed."""
    lasting = [ran for ran in attempts if cost(ran) and ran.began < ran.last]
    changes = [(at, is_begin, ran) for ran in lasting for at, is_begin in ((ran.began, 1), (ran.last, 0))]
    now: list[Ran] = []
    problems = []
    for at, is_begin, ran in sorted(changes, key=lambda change: change[:2]):
        if not is_begin:
            now.remove(ran)
            continue
        now.append(ran)
        used, most = sum(map(cost, now)), allowed(max(one.claimed for one in now))
        if used > most:
            problems.append(f"{used} of {most} at {at}: {now}")
    return problems


def find_fast_starts(times: Iterable[float], starts: int, seconds: float, slack: float = 1) -> list[str]:
    """Return the periods with more starts than a burst and the rate allow. `slack` is the duration of a start."""
    at = sorted(times)
    return [
        f"{last - first + 1} in {at[last] - at[first]:.2f} s"
        for first, last in itertools.combinations(range(len(at)), 2)
        if last - first + 1 > starts + (at[last] - at[first] + slack) * starts / seconds
    ]


class Changes:
    """Values of rules over time. While a change is in progress, both values count."""

    def __init__(self) -> None:
        self.values: dict[str, list[tuple[float, float, float]]] = defaultdict(list)

    def set(self, name: str, value: float, change: Callable[[], object], now: Callable[[], float]) -> None:
        """Change the rule. A call that fails may have changed it too, so `change` repeats it until it succeeds."""
        before = now()
        entry = len(self.values[name])
        self.values[name].append((before, math.inf, value))
        change()
        self.values[name][entry] = (before, now(), value)

    def most(self, name: str, at: float) -> float:
        """Return the largest value that a claim at this time may have seen."""
        values = self.values[name]
        begins = [before for before, _, _ in values if before <= at]
        seen = [value for before, _, value in values[: len(begins)] if before >= at - SLACK]
        # The last change that had ended counts, and all that began after it.
        for _, after, value in reversed(values[: len(begins)]):
            seen.append(value)
            if after < at - SLACK:
                break
        return max(seen, default=math.inf)
