"""An axis of time, and what lies on it: rows in, geometry out. No database, no HTML.

Across, everything is per cent of the width, so that text keeps its size on a narrow screen; down, it is pixels.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from controlplane.core.durations import describe_duration, describe_exactly

AXIS = 30
"""Pixels of the axis below the lanes."""
ROUND_STEPS = [
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 432000,
]  # fmt: skip
WORDS_NEED = 24
"""Per cent of the width; at 360 pixels that is just enough."""


@dataclass(frozen=True)
class Span:
    kind: str
    x: str
    width: str
    middle: str
    title: str
    words: str
    """How long it took, where there is room to say so."""


@dataclass(frozen=True)
class Mark:
    kind: str
    x: str
    title: str


class Axis:
    def __init__(self, start: datetime, end: datetime) -> None:
        self.start = start
        self.span = max((end - start).total_seconds(), 1.0)
        self.end = start + timedelta(seconds=self.span)

    def percent_at(self, at: datetime) -> float:
        return min(100.0, max(0.0, 100 * (at - self.start).total_seconds() / self.span))

    def x(self, at: datetime) -> str:
        return f"{self.percent_at(at):.2f}%"

    def beat_slot(self, at: datetime, interval: float) -> datetime:
        """Where beats are denser than can be told apart, one for each place: no gap where none was."""
        wide = beat_resolution(self.span)
        if wide < interval:
            return at
        return self.start + timedelta(seconds=wide * ((at - self.start).total_seconds() // wide))

    def build_span(self, kind: str, start: datetime, end: datetime, title: str, least: float = 0.0) -> Span:
        width = max(least, self.percent_at(end) - self.percent_at(start))
        left = min(self.percent_at(start), 100 - width)
        took = describe_exactly((end - start).total_seconds())
        words = took if width > WORDS_NEED else ""
        return Span(kind, f"{left:.2f}%", f"{width:.2f}%", f"{left + width / 2:.2f}%", f"{title}: {took}", words)


def beat_resolution(span: float, most: int = 120) -> float:
    """Seconds between two heartbeats that can still be told apart."""
    return max(span, 1.0) / most


def grid_step(span: float, most: int = 5) -> int:
    """Seconds from one line of the grid to the next, a round number."""
    return next((step for step in ROUND_STEPS if span / step <= most), 86400 * math.ceil(span / 86400 / most))


def build_grid(axis: Axis, offset: float = 0.0) -> Iterable[tuple[str, str, str]]:
    """The lines of the grid, at round numbers of seconds since a moment that was so long before the axis begins."""
    step = grid_step(axis.span)
    for number in range(math.ceil(offset / step), int((offset + axis.span) // step) + 1):
        share = 100 * (number * step - offset) / axis.span
        anchor = "start" if share < 6 else "end" if share > 94 else "middle"
        words = describe_duration(number * step) if offset else format_tick(number * step)
        yield f"{share:.2f}%", words, anchor


def format_tick(seconds: int) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:g} {unit}"
    return f"{seconds} s"
