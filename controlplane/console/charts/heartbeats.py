"""Last heartbeats of a server as a strip of cells, and as figures. A missing heartbeat is a hollow cell."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import groupby, pairwise
from statistics import median
from typing import Any

from django.utils.safestring import SafeString

from controlplane.console.charts.outages import OutagePeriod, seconds_away
from controlplane.console.formatting import format_moment
from controlplane.core.durations import describe_duration
from liveness import states
from liveness.selectors.servers import TimedServer
from liveness.states import ServerState

BEATS_SHOWN = 60
"""Largest number of cells in a strip."""
CELL, WIDE, HIGH = 8, 6, 14
"""Distance between cells, width and height of a cell, in units of the drawing."""


def build_cells(
    beats: Sequence[float],
    interval: float,
    silence: float | None,
    most: int = BEATS_SHOWN,
    outages: Sequence[OutagePeriod] = (),
) -> list[bool]:
    """Return the last heartbeats of a server, oldest first. False is a missing heartbeat.

    `beats` are times in seconds, latest first. `silence` is the time since the last one, or None if no more are
    expected. None are expected during `outages` of the control plane itself.
    """
    gone_by = [later - earlier - seconds_away(earlier, later, outages) for later, earlier in pairwise(beats)]
    cells: list[bool] = []
    if silence is not None and beats:
        cells += missed_beats(silence, interval, most)
    for seconds in [*gone_by, 0.0][: len(beats)]:
        cells.append(True)
        if seconds > interval:
            cells += missed_beats(seconds, interval, most)
        if len(cells) >= most:
            break
    return cells[most - 1 :: -1] if len(cells) > most else cells[::-1]


def missed_beats(seconds: float, interval: float, most: int) -> list[bool]:
    """Return one False for each heartbeat that is missing in this time."""
    return [False] * max(0, min(most, round(seconds / interval) - 1))


@dataclass
class Strip:
    """Strip of cells. They are drawn as two paths, so that pages with thousands of cells stay small."""

    cells: list[bool]
    is_over: bool = False
    most: int = BEATS_SHOWN

    @property
    def beats(self) -> str:
        """Return the path of all runs of heartbeats. It is drawn dashed, and each dash is a cell."""
        return "".join(
            f"M{x} {1 + HIGH // 2}h{number * CELL - CELL + WIDE}" for x, number, is_beat in self.runs if is_beat
        )

    @property
    def gaps(self) -> str:
        hollow = ((x + place * CELL) for x, number, is_beat in self.runs if not is_beat for place in range(number))
        return "".join(f"M{x}.75 1.75h4.5v{HIGH - 1.5:g}h-4.5z" for x in hollow)

    @cached_property
    def runs(self) -> list[tuple[int, int, bool]]:
        """Return each run of equal cells: its position, its number of cells, and True if they are heartbeats."""
        runs, x = [], (self.most - len(self.cells)) * CELL
        for is_beat, run in groupby(self.cells):
            number = len(list(run))
            runs.append((x, number, is_beat))
            x += number * CELL
        return runs

    @property
    def width(self) -> int:
        return self.most * CELL

    @property
    def missed(self) -> int:
        return self.cells.count(False)

    @property
    def description(self) -> str:
        came = len(self.cells) - self.missed
        return f"the last {came} heartbeats, {self.missed} missing" if self.cells else "no heartbeat"

    @property
    def drawing(self) -> SafeString:
        """Return the SVG. It is not a template, because each row of a page has an SVG. It contains only numbers."""
        return SafeString(
            f'<svg class="strip{" is-over" if self.is_over else ""}" viewBox="0 0 {self.width} 16" width="100%"'
            f' preserveAspectRatio="xMaxYMid meet" role="img" aria-label="{self.description}">'
            f"<title>{self.description}; latest at the right, hollow: missing</title>"
            f'<path class="beat" d="{self.beats}"/><path class="gap" d="{self.gaps}"/></svg>'
        )


def build_strip(server: TimedServer, beats: list[float], outages: Sequence[OutagePeriod] = ()) -> Strip:
    """Return the strip of a server. After a server has ended, no more heartbeats are expected."""
    is_over = server.state not in states.MAY_HEARTBEAT
    silence = None if is_over and server.state != ServerState.DISCONNECTED else server.silence
    return Strip(build_cells(beats, server.heartbeat_interval, silence, outages=outages), is_over)


def summarize_intervals(
    beats: Sequence[datetime],
    expected: float,
    now: datetime,
    is_expected: bool = False,
    outages: Sequence[OutagePeriod] = (),
) -> dict[str, Any] | None:
    """Return figures about the intervals between heartbeats. `beats` are latest first.

    A gap is longer than two intervals. `is_expected` means that the server should still send heartbeats. Then the time
    since its last one may be a gap too. A gap that overlaps an outage of the control plane itself (`outages`) is
    marked.
    """
    between = [((later - earlier).total_seconds(), earlier) for later, earlier in pairwise(beats)]
    if not between:
        return None
    longest, after = max(between)
    silence = (now - beats[0]).total_seconds()
    present_gap = describe_duration(silence) if is_expected and silence > 2 * expected else None
    gaps = [
        (
            describe_duration(seconds),
            format_moment(at, now),
            seconds_away(at.timestamp(), at.timestamp() + seconds, outages) > 0,
        )
        for seconds, at in between
        if seconds > 2 * expected
    ]
    return {
        "count": len(between),
        "median": f"{median(seconds for seconds, _ in between):.1f}",
        "longest": f"{longest:.1f}",
        "after": format_moment(after, now),
        "gaps": gaps[:10],
        "present_gap": present_gap,
    }
