"""Charts of one server: slots in use, attempts that ended, times between heartbeats, and the load of its machine."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from controlplane.console.charts.plots import (
    HistoryChart,
    LossMark,
    Read,
    count_of,
    draw_lines,
    format_number,
    format_seconds,
    stack,
)
from jobs.selectors.server_history import ServerHistory
from jobs.sql.rows.server_history import ServerStep

ROWS = 12


@dataclass(frozen=True)
class ServerRow:
    """Table row with the values of several steps. A value that is unknown is a dash."""

    at: datetime
    words: str
    slots: str
    completed: str
    failed: str
    others: str
    longest: str
    cpu: str
    memory: str
    is_whole: bool


def draw_work(history: ServerHistory, slots: int) -> list[HistoryChart]:
    """Return the charts of used slots and of ended attempts."""
    minutes = history.period.step / 60
    ended: list[tuple[str, str, Read[ServerStep]]] = [
        ("completed", "completed", lambda step: per_minute(step.completed, minutes)),
        ("failed", "failed", lambda step: per_minute(step.failed, minutes)),
        ("others", "cancelled, given back or lost", lambda step: per_minute(step.others, minutes)),
    ]
    used: list[tuple[str, str, Read[ServerStep]]] = [("used", "in use", lambda step: step.slots_used)]
    totals = [sum(getattr(step, kind) or 0 for step in history.steps) for kind, _, _ in ended]
    words = f"{count_of(sum(totals), 'attempt')} ended, {totals[1]} of them failed."
    drawn = stack("ended", "Attempts ended per minute", words, history.steps, ended, format_number, whole=history.whole)
    series = [replace(one, latest=f"{total:,}") for one, total in zip(drawn.series, totals, strict=True)]
    most = max((step.slots_used or 0 for step in history.steps), default=0)
    held = f"At most {format_number(most)} of {count_of(slots, 'slot')} in use, averaged over each step."
    title = f"Slots in use, of {slots}"
    return [stack("slots", title, held, history.steps, used, format_number), replace(drawn, series=series)]


def draw_beats(history: ServerHistory, interval: float, losses: Sequence[datetime]) -> HistoryChart:
    """Return the chart of the longest time between two heartbeats in each step. The line breaks where none came.

    `interval` is the heartbeat interval of the server; `losses` are times when it was lost.
    """
    series: list[tuple[str, str, Read[ServerStep]]] = [
        ("longest", "longest", lambda step: step.longest_gap),
        ("expected", "expected", lambda step: interval),
    ]
    drawn = draw_lines("beats", "Longest time between heartbeats", history.steps, series, format_seconds)
    return replace(drawn, marks=place_losses(history, losses))


def draw_loads(history: ServerHistory) -> list[HistoryChart]:
    """Return the charts of CPU and memory use of the machine.

    The list is empty if no heartbeat of the period has one of these values.
    """
    if all(step.cpu_highest is None and step.memory_highest is None for step in history.steps):
        return []
    cpu: list[tuple[str, str, Read[ServerStep]]] = [
        ("highest", "highest", lambda step: step.cpu_highest),
        ("average", "average", lambda step: step.cpu_average),
    ]
    memory: list[tuple[str, str, Read[ServerStep]]] = [
        ("highest", "highest", lambda step: step.memory_highest),
        ("average", "average", lambda step: step.memory_average),
    ]
    return [
        draw_lines("cpu", "CPU use of the machine", history.steps, cpu, format_percent, top=100),
        draw_lines("memory", "Memory use of the machine", history.steps, memory, format_percent, top=100),
    ]


def format_percent(value: float) -> str:
    return f"{value:.0f} %"


def place_losses(history: ServerHistory, losses: Sequence[datetime]) -> list[LossMark]:
    period = history.period
    shares = [(at, (at - period.since).total_seconds() / period.seconds) for at in losses]
    return [LossMark(f"{100 * share:.5g}%", f"{at:%b %d %H:%M} UTC: lost") for at, share in shares if 0 <= share < 1]


def per_minute(count: int | None, minutes: float) -> float | None:
    return None if count is None else count / minutes


def tabulate(history: ServerHistory) -> list[ServerRow]:
    """Return the charts' values as a table, latest first, with several steps in a row."""
    steps, size = history.steps, max(1, -(-len(history.steps) // ROWS))
    rows = []
    for begin in range(0, len(steps), size):
        part, at = steps[begin : begin + size], history.at(begin)
        slots = [step.slots_used for step in part if step.slots_used is not None]
        gaps = [step.longest_gap for step in part if step.longest_gap is not None]
        completed, failed, others = (
            add_known([getattr(step, kind) for step in part]) for kind in ("completed", "failed", "others")
        )
        rows.append(
            ServerRow(
                at=at,
                words=f"{at:%H:%M}" if history.period.seconds <= 3600 else f"{at:%b %d %H:%M}",
                slots=format_number(sum(slots) / len(slots)) if slots else "–",
                completed=completed,
                failed=failed,
                others=others,
                longest=format_seconds(max(gaps)) if gaps else "–",
                cpu=find_highest([step.cpu_highest for step in part]),
                memory=find_highest([step.memory_highest for step in part]),
                is_whole=begin + len(part) <= history.whole,
            )
        )
    return rows[::-1]


def add_known(counts: Sequence[int | None]) -> str:
    known = [count for count in counts if count is not None]
    return f"{sum(known):,}" if known else "–"


def find_highest(values: Sequence[int | None]) -> str:
    known = [value for value in values if value is not None]
    return format_percent(max(known)) if known else "–"
