"""A measured figure, and how it is measured: alternating with its reference, the median of several rounds."""

import math
import os
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

ROUNDS = 3


@dataclass(frozen=True)
class Row:
    """`ratio` is value / reference. Units: those ending in /s are better when higher, s and ms when lower."""

    bench: str
    value: float
    unit: str
    reference: float
    against: str
    """What the reference is."""
    goal: str
    more: Mapping[str, float] = field(default_factory=dict)
    """What else was measured: `Cost.as_dict()`; or `cpu_ms` of web servers and PostgreSQL per unit."""

    @property
    def ratio(self) -> float:
        return self.value / self.reference if self.reference else math.nan

    def as_dict(self) -> dict[str, str | float]:
        return {
            "bench": self.bench,
            "value": round(self.value, 4),
            "unit": self.unit,
            "reference": round(self.reference, 4),
            "ratio": round(self.ratio, 3),
            "load": round(os.getloadavg()[0], 1),
            **{name: round(value, 3) for name, value in self.more.items()},
        }


Step = Callable[[], None]
"""Called after each piece of work, for the bar."""


def alternate(step: Step, *measured: Callable[[], float], rounds: int = ROUNDS) -> list[float]:
    """The median of each over the rounds; in turns, so that whatever else the machine does befalls all of them."""
    results: list[list[float]] = [[] for _ in measured]
    for _ in range(rounds):
        for figures, measure in zip(results, measured, strict=True):
            figures.append(measure())
            step()
    return [statistics.median(figures) for figures in results]
