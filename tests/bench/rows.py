"""Measure figures. Measurement and reference alternate, and the figure is the median of several rounds."""

import math
import os
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

ROUNDS = 3


@dataclass(frozen=True)
class Row:
    """Measured figure. `ratio` is value / reference. Rates (/s) are better when higher, s and ms when lower."""

    bench: str
    value: float
    unit: str
    reference: float
    against: str
    """Description of the reference."""
    goal: str
    more: Mapping[str, float] = field(default_factory=dict)
    """Further figures: `Cost.as_dict()`, or `cpu_ms` of web servers and PostgreSQL per unit."""

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
"""Function that advances the progress bar after each piece of work."""


def alternate(step: Step, *measured: Callable[[], float], rounds: int = ROUNDS) -> list[float]:
    """Return the median of each function over the rounds. They alternate, so that other load affects all of them."""
    results: list[list[float]] = [[] for _ in measured]
    for _ in range(rounds):
        for figures, measure in zip(results, measured, strict=True):
            figures.append(measure())
            step()
    return [statistics.median(figures) for figures in results]
