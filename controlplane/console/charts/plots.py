"""Bars and lines on one time axis, for the charts of histories.

This module computes positions from points in time, without database and HTML. A plot has its own units: each point is
one unit wide, the top is at 0 and the bottom at 100. The page stretches the plot.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar

from controlplane.core.durations import describe_duration

FLOOR = 100
TICKS = 4
SHORT = 600
"""Largest length of an axis whose labels have seconds."""
Step = TypeVar("Step")
Read = Callable[[Step], float | None]


@dataclass(frozen=True)
class Series:
    """Shape in a chart. `kind` is its CSS class."""

    kind: str
    words: str
    path: str
    latest: str
    growing: str = ""
    """Path of the bars whose minute has not ended or is not counted yet."""


@dataclass(frozen=True)
class LossMark:
    """Mark at a time when servers were lost."""

    x: str
    title: str


@dataclass(frozen=True)
class HistoryChart:
    name: str
    title: str
    description: str
    """Description for screen readers, in a sentence."""
    series: list[Series]
    top: str
    """Value at the top of the plot."""
    middle: str
    width: int
    marks: list[LossMark]
    readings: str
    """Values of each point as text, separated by line breaks, for the tooltip."""


def stack(
    name: str,
    title: str,
    description: str,
    points: Sequence[Step],
    series: Sequence[tuple[str, str, Read[Step]]],
    say: Callable[[float], str],
    marks: Sequence[LossMark] = (),
    whole: int | None = None,
) -> HistoryChart:
    """Return a chart of stacked bars. From the index `whole` on, points still grow.

    None means that no point grows, because all points are averages.
    """
    whole = len(points) if whole is None else whole
    values = [[read(point) or 0 for _, _, read in series] for point in points]
    top = round_up(max(map(sum, values), default=0))
    shapes = []
    for place, (kind, words, read) in enumerate(series):
        bars: list[str] = []
        growing: list[str] = []
        for x, row in enumerate(values):
            if row[place]:
                height = FLOOR * row[place] / top
                (bars if x < whole else growing).append(
                    f"M{x + 0.1:g} {FLOOR * (1 - sum(row[:place]) / top):.4g}v{-height:.4g}h.8v{height:.4g}z"
                )
        shapes.append(Series(kind, words, "".join(bars), latest(points[:whole], read, say), "".join(growing)))
    values_said = read_out(points, series, say)
    return HistoryChart(name, title, description, shapes, say(top), say(top / 2), len(points), list(marks), values_said)


def draw_lines(
    name: str,
    title: str,
    points: Sequence[Step],
    series: Sequence[tuple[str, str, Read[Step]]],
    say: Callable[[float], str],
    whole: int | None = None,
    top: float | None = None,
) -> HistoryChart:
    """Return a chart of lines that break at unknown values. `whole` is the same as in `stack`.

    `top` is the value at the top of the plot. None means a round value above the highest one.
    """
    top = top or round_up(max((read(point) or 0 for point in points for _, _, read in series), default=0))
    shapes = []
    for kind, words, read in series:
        path, before = [], False
        for x, point in enumerate(points):
            value = read(point)
            if value is not None:
                y = FLOOR * (1 - value / top)
                path.append(f"{'V' if before else f'M{x} '}{y:.4g}h1")
            before = value is not None
        shapes.append(Series(kind, words, "".join(path), latest(points[:whole], read, say)))
    peaks, readings = describe_peaks(points, series, say), read_out(points, series, say)
    return HistoryChart(name, title, peaks, shapes, say(top), say(top / 2), len(points), [], readings)


def read_out(points: Sequence[Step], series: Sequence[tuple[str, str, Read[Step]]], say: Callable[[float], str]) -> str:
    """Return the values of each point as text, one line for each."""
    lines = []
    for point in points:
        values = [(words, read(point)) for _, words, read in series]
        lines.append(", ".join(f"{words} {'–' if value is None else say(value)}" for words, value in values))
    return "\n".join(lines)


def count_of(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def latest(points: Sequence[Step], read: Read[Step], say: Callable[[float], str]) -> str:
    """Return the last known value."""
    known = [value for point in points if (value := read(point)) is not None]
    return say(known[-1]) if known else "–"


def describe_peaks(
    points: Sequence[Step], series: Sequence[tuple[str, str, Read[Step]]], say: Callable[[float], str]
) -> str:
    sentences = []
    for _, words, read in series:
        known = [value for point in points if (value := read(point)) is not None]
        sentences.append(f"{words}: at most {say(max(known))}" if known else f"{words}: nothing known")
    return "; ".join(sentences) + "."


def build_ticks(begin: datetime, seconds: float) -> list[tuple[str, str, str, str]]:
    """Return the labels of an axis that begins at this time and is so many seconds long."""
    marks = []
    for tick in range(TICKS + 1):
        at: datetime = begin + timedelta(seconds=seconds * tick / TICKS)
        words = f"{at:%b %d}" if seconds > 86400 else f"{at:%H:%M}" if seconds > SHORT else f"{at:%H:%M:%S}"
        marks.append(
            (f"{100 * tick / TICKS:g}%", words, {0: "start", TICKS: "end"}.get(tick, "middle"), at.isoformat())
        )
    return marks


def round_up(value: float) -> float:
    """Return the next larger 1, 2 or 5 times a power of ten; at least 1."""
    if value <= 1:
        return 1
    size = 10.0 ** math.floor(math.log10(value))
    return next(size * step for step in (1, 2, 5, 10) if value <= size * step)


def format_number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def format_seconds(seconds: float) -> str:
    return describe_duration(seconds) if seconds >= 60 else f"{seconds:.2g} s"
