"""Charts of the history of all jobs and servers: jobs that ended, that wait and that run, waiting times, and slots."""

from dataclasses import dataclass
from datetime import datetime

from controlplane.console.charts.plots import (
    HistoryChart,
    LossMark,
    Read,
    build_ticks,
    count_of,
    describe_peaks,
    draw_lines,
    format_number,
    format_seconds,
    latest,
    stack,
)
from jobs.selectors.history import History, Point


@dataclass(frozen=True)
class HistoryRow:
    """Table row with the sums of several points."""

    at: datetime
    words: str
    """Start time in UTC."""
    completed: int
    failed: int
    others: int
    waited: str
    waiting: str
    running: str
    slots: str
    lost: int
    is_whole: bool = True
    """False if the numbers still grow."""


def draw_charts(history: History) -> list[HistoryChart]:
    """Return the charts: jobs that ended, jobs waiting and running, waiting times, and worker slots.

    The sums of a minute that has not ended, or is not counted yet, are drawn separately. The legend leaves them out.
    """
    points, minutes, whole = history.points, history.window.step / 60, history.whole
    ended: list[tuple[str, str, Read[Point]]] = [
        ("completed", "completed", lambda point: point.ended["completed"] / minutes),
        ("failed", "failed", lambda point: point.ended["failed"] / minutes),
        ("others", "cancelled, expired or skipped", lambda point: count_others(point) / minutes),
    ]
    jobs: list[tuple[str, str, Read[Point]]] = [
        ("running", "running", lambda point: point.running),
        ("waiting", "waiting", lambda point: point.waiting),
    ]
    waited: list[tuple[str, str, Read[Point]]] = [
        ("half", "median (p50)", lambda point: point.waited_p50),
        ("most", "95 % below (p95)", lambda point: point.waited_p95),
    ]
    slots: list[tuple[str, str, Read[Point]]] = [
        ("used", "used", lambda point: point.slots_used),
        ("free", "free", lambda point: point.slots_free),
    ]
    total = sum(sum(point.ended.values()) for point in points)
    failed = sum(point.ended["failed"] for point in points)
    lost = sum(point.lost for point in points)
    ended_words = f"{count_of(total, 'job')} ended, {failed} of them failed; {lost} servers were lost."
    return [
        stack("ended", "Jobs ended per minute", ended_words, points, ended, format_number, place_marks(history), whole),
        draw_lines("jobs", "Jobs waiting and running", points, jobs, format_number),
        draw_lines("waited", "Waiting time of ended jobs", points, waited, format_seconds, whole),
        stack("slots", "Worker slots", describe_peaks(points, slots, format_number), points, slots, format_number),
    ]


def count_others(point: Point) -> int:
    return point.ended["cancelled"] + point.ended["expired"] + point.ended["skipped"]


def place_marks(history: History) -> list[LossMark]:
    width = len(history.points)
    return [
        LossMark(
            f"{100 * (place + 0.5) / width:.5g}%",
            f"{point.at:%b %d %H:%M} UTC: {count_of(point.lost, 'server')} lost, "
            f"{count_of(point.moved, 'running attempt')} resubmitted",
        )
        for place, point in enumerate(history.points)
        if point.lost
    ]


def build_axis(history: History) -> list[tuple[str, str, str, str]]:
    """Return the axis labels: position, text, text anchor and time."""
    return build_ticks(history.points[0].at, history.window.seconds)


def build_table(history: History, rows: int = 12) -> list[HistoryRow]:
    """Return the charts' values as a table, latest first, with several points in a row."""
    points = history.points
    size = max(1, len(points) // rows)
    table = []
    for begin in range(0, len(points), size):
        part = points[begin : begin + size]
        lines = {
            name: latest(part, read, format_number)
            for name, read in {
                "waiting": lambda point: point.waiting,
                "running": lambda point: point.running,
                "used": lambda point: point.slots_used,
                "free": lambda point: point.slots_free,
            }.items()
        }
        waited = max((point.waited_p95 for point in part if point.waited_p95 is not None), default=None)
        table.append(
            HistoryRow(
                at=part[0].at,
                words=f"{part[0].at:%b %d %H:%M}" if history.window.seconds > 3600 else f"{part[0].at:%H:%M}",
                completed=sum(point.ended["completed"] for point in part),
                failed=sum(point.ended["failed"] for point in part),
                others=sum(map(count_others, part)),
                waited="–" if waited is None else format_seconds(waited),
                waiting=lines["waiting"],
                running=lines["running"],
                slots=f"{lines['used']} / {lines['free']}",
                lost=sum(point.lost for point in part),
                is_whole=begin + len(part) <= history.whole,
            )
        )
    return table[::-1]
