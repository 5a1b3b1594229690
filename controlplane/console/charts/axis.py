"""Time axis of a chart and the shapes on it. This module computes positions from rows, without database and HTML.

Horizontal values are per cent of the width, so that text keeps its size on a narrow screen. Vertical values are pixels.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from controlplane.core.bounds import moment_after
from controlplane.core.durations import describe_duration, describe_exactly

AXIS = 30
"""Height of the axis below the lanes, in pixels."""
ROUND_STEPS = [
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 432000,
]  # fmt: skip
WORDS_NEED = 24
"""Smallest width of a bar with text in it, in per cent. On a screen of 360 pixels this is just enough."""


@dataclass(frozen=True)
class AxisSpan:
    kind: str
    x: str
    width: str
    middle: str
    title: str
    words: str
    """Duration of the span. Empty if the bar is too narrow."""


@dataclass(frozen=True)
class Mark:
    kind: str
    x: str
    title: str


class Axis:
    def __init__(self, start: datetime, end: datetime) -> None:
        self.start = start
        self.span = max((end - start).total_seconds(), 1.0)
        self.end = moment_after(start, self.span)

    def percent_at(self, at: datetime) -> float:
        return min(100.0, max(0.0, 100 * (at - self.start).total_seconds() / self.span))

    def x(self, at: datetime) -> str:
        return f"{self.percent_at(at):.2f}%"

    def beat_slot(self, at: datetime, interval: float) -> datetime:
        """Return the time at which a heartbeat is drawn.

        If heartbeats are too dense to draw each of them, times are rounded to slots. Each slot then has at most one
        mark, and rounding makes no gaps.
        """
        wide = beat_resolution(self.span)
        if wide < interval:
            return at
        return moment_after(self.start, wide * ((at - self.start).total_seconds() // wide))

    def build_span(self, kind: str, start: datetime, end: datetime, title: str, least: float = 0.0) -> AxisSpan:
        width = max(least, self.percent_at(end) - self.percent_at(start))
        left = min(self.percent_at(start), 100 - width)
        took = describe_exactly((end - start).total_seconds())
        words = took if width > WORDS_NEED else ""
        return AxisSpan(kind, f"{left:.2f}%", f"{width:.2f}%", f"{left + width / 2:.2f}%", f"{title}: {took}", words)


def beat_resolution(span: float, most: int = 120) -> float:
    """Return the shortest time between two heartbeats that can be drawn apart, in seconds."""
    return max(span, 1.0) / most


def grid_step(span: float, most: int = 5) -> int:
    """Return the time between two grid lines: a round number of seconds."""
    return next((step for step in ROUND_STEPS if span / step <= most), 86400 * math.ceil(span / 86400 / most))


def build_grid(axis: Axis, offset: float = 0.0) -> Iterable[tuple[str, str, str]]:
    """Yield the grid lines at round numbers of seconds. `offset` is the number of seconds at the start of the axis."""
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
