"""Steps of an execution as lanes on one time axis.

This module computes positions from rows, without database and HTML.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from controlplane.console.charts.axis import AXIS, Axis, AxisSpan, Mark, build_grid, grid_step
from controlplane.console.charts.folds import FAILURES, MEMBERS_SHOWN, Fold, Row, is_idle
from controlplane.console.charts.step_graph import KEY_LENGTH, doubt_about_step
from controlplane.console.formatting import shorten
from controlplane.core.durations import describe_duration
from jobs.selectors.executions import Step
from jobs.sql.rows.step_times import StepTimes
from jobs.states import JobState

LANE, BAR = 42, 28
"""Sizes in pixels: the height of a lane, and the offset of the middle of its bar."""
AREA, PLACES = 18, 120
"""Shape of a fold: its height in pixels, and its number of points."""
STATES_NAMED = 3


@dataclass
class StepLane:
    """Lane of one step or of a fold."""

    top: int
    name: str
    label: str
    state: str
    step: Step | None = None
    fold: Fold | None = None
    failed: str = ""
    """Number of failed steps in a fold."""
    others: str = ""
    """More states of a fold, if there is room."""
    url: str = ""
    """Link that opens or closes the fold."""
    is_inner: bool = False
    """True if it belongs to the fold above."""
    doubt: str = ""
    spans: list[AxisSpan] = field(default_factory=list)
    ends: list[Mark] = field(default_factory=list)
    area: str = ""
    """Outline of the number of steps that run at once, in its own units: 120 wide, the top at 0, the bottom at 100."""
    most: str = ""

    @property
    def middle(self) -> int:
        return self.top + BAR

    @property
    def area_top(self) -> int:
        return self.middle - AREA // 2


@dataclass
class Segment:
    """Part of the axis between two grid lines. It links to a closer view."""

    x: str
    width: str
    since: float
    until: float
    words: str
    url: str = ""


@dataclass(frozen=True)
class StepsChart:
    lanes: list[StepLane]
    axis: list[tuple[str, str, str]]
    segments: list[Segment]
    height: int
    floor: int
    idle: int
    """Steps without anything to draw in this period."""

    @property
    def has_folds(self) -> bool:
        return any(lane.fold for lane in self.lanes)


def is_within(step: StepTimes, axis: Axis, now: datetime) -> bool:
    """Return True if the step has something to draw in this period."""
    return not is_idle(step) and step.free_at <= axis.end and (step.finished_at or now) >= axis.start


def build_steps_chart(
    begun_at: datetime, axis: Axis, rows: Sequence[Row], details: Mapping[UUID, Step], now: datetime, idle: int = 0
) -> StepsChart:
    """Return a lane for each row: a step with its attempts, or a fold with how many of its steps run at once."""
    lanes: list[StepLane] = []
    inside = 0
    for row in rows:
        top = len(lanes) * LANE
        if isinstance(row, Fold):
            lanes.append(build_fold_lane(row, top, axis, now))
            inside = len(row.rows)
            members = {step.job for step in row.rows}
        else:
            lane = build_step_lane(row, details[row.job], top, axis, now)
            lane.is_inner = bool(inside) and row.job in members
            lanes.append(lane)
    floor = len(lanes) * LANE
    offset = (axis.start - begun_at).total_seconds()
    grid = list(build_grid(axis, offset))
    return StepsChart(lanes, grid, list(build_segments(axis, offset)), floor + AXIS, floor, idle)


def build_segments(axis: Axis, offset: float) -> Iterable[Segment]:
    step = grid_step(axis.span)
    if axis.span < 2 * step:
        return
    at = offset // step * step
    while at < offset + axis.span:
        since, until = max(at, offset), min(at + step, offset + axis.span)
        x, width = 100 * (since - offset) / axis.span, 100 * (until - since) / axis.span
        words = f"{describe_duration(since)} to {describe_duration(until)}"
        yield Segment(f"{x:.2f}%", f"{width:.2f}%", since, until, words)
        at += step


def build_step_lane(times: StepTimes, step: Step, top: int, axis: Axis, now: datetime) -> StepLane:
    state = f"{step.state}, kept" if step.is_kept else step.state
    hook = " (hook)" if step.is_hook else ""
    lane = StepLane(top, step.step, shorten(step.step, 2 * KEY_LENGTH) + hook, state, step=step)
    lane.doubt = doubt_about_step(step)
    if step.is_kept or step.state in (JobState.BLOCKED, JobState.SKIPPED):
        return lane
    attempts = list(step.attempts.all())
    until = step.finished_at or now
    since = min(step.available_at, attempts[0].claimed_at if attempts else until)
    needs_worker = not (step.child_execution or step.wait)
    if not needs_worker:
        title = "child execution" if step.child_execution else "waits without a worker"
        add_span(lane, axis, "running" if step.child_execution else "waiting", since, until, title, least=0.6)
    for attempt in attempts:
        over = attempt.finished_at or now
        add_span(lane, axis, "waiting", since, max(since, attempt.claimed_at), "waiting")
        add_span(lane, axis, "claimed", attempt.claimed_at, attempt.started_at or over, "claimed")
        if attempt.started_at:
            title = f"#{attempt.number} on {attempt.server.name}"
            add_span(lane, axis, "running", attempt.started_at, over, title, least=0.6)
        if attempt.finished_at:
            title = f"#{attempt.number} {attempt.state} at {over:%H:%M:%S} UTC: {attempt.reason}".rstrip(": ")
            add_end(lane, axis, attempt.state, over, title)
        since = over
    if needs_worker and until > since and not (attempts and attempts[-1].finished_at is None):
        add_span(lane, axis, "waiting", since, until, "waiting for a worker")
    if step.finished_at and (not attempts or attempts[-1].state != step.state):
        add_end(lane, axis, step.state, step.finished_at, f"{step.state} at {step.finished_at:%H:%M:%S} UTC")
    return lane


def add_span(
    lane: StepLane, axis: Axis, kind: str, start: datetime, end: datetime, title: str, least: float = 0.0
) -> None:
    if end >= axis.start and start <= axis.end:
        lane.spans.append(axis.build_span(kind, start, end, title, least))


def add_end(lane: StepLane, axis: Axis, kind: str, at: datetime, title: str) -> None:
    if axis.start <= at <= axis.end:
        lane.ends.append(Mark(kind, axis.x(at), title))


def build_fold_lane(fold: Fold, top: int, axis: Axis, now: datetime) -> StepLane:
    counts = [(state, f"{count:,} {state}") for state, count in fold.counts]
    failed = [text for state, text in counts if state in FAILURES]
    well = [text for state, text in counts if state not in FAILURES]
    more = [f"{len(well) - STATES_NAMED} more states"] if len(well) > STATES_NAMED else []
    first = well[0] if well and not failed else ""
    others = [*well[bool(first) : STATES_NAMED], *more]
    label = f"{shorten(fold.label, 2 * KEY_LENGTH)} × {fold.number:,}"
    if fold.is_open and fold.number > MEMBERS_SHOWN:
        label += f", {MEMBERS_SHOWN} of them here"
    name = f"{fold.label}: {fold.number:,} steps, {', '.join(failed + well)}"
    lane = StepLane(
        top, name, label, first, fold=fold, failed=", ".join(failed), others="".join(f", {o}" for o in others)
    )
    drawn = [step for step in fold.rows if is_within(step, axis, now)]
    if drawn:
        since = max(axis.start, min(step.free_at for step in drawn))
        until = min(axis.end, max(step.finished_at or now for step in drawn))
        add_span(lane, axis, "waiting", since, max(since, until), "from the first possible start to the last end")
        lane.area, most = draw_area([(s.begun_at, s.finished_at or now, s.steps) for s in drawn if s.begun_at], axis)
        lane.most = f"at most {most} at once" if most else ""
    places = {axis.x(at): at for step in drawn if step.state in FAILURES and (at := step.finished_at)}
    for at in places.values():
        add_end(lane, axis, "FAILED", at, f"FAILED at {at:%H:%M:%S} UTC")
    return lane


def draw_area(periods: Iterable[tuple[datetime, datetime, int]], axis: Axis) -> tuple[str, int]:
    """Return an outline of the number of overlapping periods along the axis, and its maximum.

    The third value of a period is how many steps it stands for.
    """
    wide = timedelta(seconds=axis.span / PLACES)
    change = [0] * (PLACES + 1)
    for start, end, steps in periods:
        if end >= axis.start and start <= axis.end:
            first = max(0, min(PLACES - 1, (start - axis.start) // wide))
            change[first] += steps
            change[max(first + 1, min(PLACES, -((axis.start - end) // wide)))] -= steps
    going, most, points = 0, 0, []
    for place in range(PLACES):
        going += change[place]
        most = max(most, going)
        points.append(going)
    if not most:
        return "", 0
    path, before = "", 0
    for place, number in enumerate([*points, 0]):
        if number != before:
            path += f"H{place}" if before else f"M{place} 100"
            path += f"V{100 - 100 * number / most:.0f}" + ("Z" if not number else "")
            before = number
    return path, most
