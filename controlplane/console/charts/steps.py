"""The steps of an execution as a drawing: a graph of what waits for what, and lanes on one axis of time.

Rows in, geometry out. No database, no HTML.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from controlplane.console.charts.lanes import AXIS, Axis, Mark, Span, build_grid
from controlplane.console.presenters.formatting import shorten
from controlplane.console.presenters.jobs import doubt_about
from jobs import graph
from jobs.execution_selectors import Step
from jobs.states import JobState

BOX, BOX_HEIGHT, COLUMN, ROW = 160, 38, 204, 54
"""Of the box of a step, and from one column, or row, to the next; units of the drawing."""
KEY_LENGTH = 16
LANE, BAR = 46, 30
"""Pixels: of a lane, and to the middle of its bar."""


def doubt_about_step(step: Step) -> str:
    """Why a step that a server has is not known to run."""
    return doubt_about(step.state, step.server["state"] if step.server else None)


@dataclass(frozen=True)
class Box:
    """A step in the graph."""

    step: Step
    x: int
    y: int
    label: str

    @property
    def middle(self) -> int:
        return self.y + BOX_HEIGHT // 2

    @property
    def doubt(self) -> str:
        return doubt_about_step(self.step)

    @property
    def look(self) -> str:
        """The state whose colours it has."""
        return "SILENT" if self.doubt else self.step.state


@dataclass(frozen=True)
class Edge:
    path: str
    is_passed: bool
    """What it comes from has ended well."""


@dataclass(frozen=True)
class Graph:
    boxes: list[Box]
    edges: list[Edge]
    width: int
    height: int


def build_graph(steps: Sequence[Step]) -> Graph:
    """Steps in columns: each right of all that it depends on. Those that depend on nothing shown stand at the left."""
    known = {step.step: [key for key in step.depends_on if key] for step in steps}
    known = {key: [on for on in needs if on in known] for key, needs in known.items()}
    rank = graph.step_ranks(known)
    filled: dict[int, int] = {}
    boxes = {}
    for step in steps:
        column = rank[step.step]
        row = filled[column] = filled.get(column, -1) + 1
        boxes[step.step] = Box(step, column * COLUMN, row * ROW, shorten(step.step, KEY_LENGTH))
    edges = [
        Edge(draw_curve(boxes[on], boxes[key]), boxes[on].step.state == JobState.COMPLETED)
        for key, needs in known.items()
        for on in needs
    ]
    width = (max(rank.values(), default=0)) * COLUMN + BOX
    height = max(filled.values(), default=0) * ROW + BOX_HEIGHT
    return Graph(list(boxes.values()), sorted(edges, key=lambda edge: edge.is_passed), width, height)


def draw_curve(before: Box, after: Box) -> str:
    left, right = before.x + BOX, after.x - 4
    bend = (right - left) // 2
    return f"M{left} {before.middle}C{left + bend} {before.middle} {right - bend} {after.middle} {right} {after.middle}"


@dataclass
class Lane:
    """One step."""

    top: int
    step: Step
    label: str
    spans: list[Span] = field(default_factory=list)
    ends: list[Mark] = field(default_factory=list)

    @property
    def middle(self) -> int:
        return self.top + BAR

    @property
    def doubt(self) -> str:
        return doubt_about_step(self.step)


@dataclass(frozen=True)
class Chart:
    lanes: list[Lane]
    axis: list[tuple[str, str, str]]
    height: int
    floor: int


def build_steps_chart(start: datetime, end: datetime, steps: Iterable[Step], now: datetime) -> Chart:
    """A lane for each step, with all of its attempts on it; one that has not been freed has an empty lane."""
    axis = Axis(start, end)
    lanes: list[Lane] = []
    for step in steps:
        lane = Lane(len(lanes) * LANE, step, shorten(step.step, 2 * KEY_LENGTH))
        draw_step(lane, step, axis, now)
        lanes.append(lane)
    floor = len(lanes) * LANE
    return Chart(lanes, list(build_grid(axis)), floor + AXIS, floor)


def draw_step(lane: Lane, step: Step, axis: Axis, now: datetime) -> None:
    if step.state in (JobState.BLOCKED, JobState.SKIPPED):
        return
    attempts = list(step.attempts.all())
    until = step.finished_at or now
    since = min(max(step.available_at, axis.start), attempts[0].claimed_at if attempts else until)
    if step.child_execution:
        lane.spans.append(axis.build_span("running", since, until, "its child runs", least=0.6))
    for attempt in attempts:
        over = attempt.finished_at or now
        lane.spans.append(axis.build_span("waiting", since, max(since, attempt.claimed_at), "waiting"))
        lane.spans.append(axis.build_span("claimed", attempt.claimed_at, attempt.started_at or over, "claimed"))
        if attempt.started_at:
            title = f"#{attempt.number} on {attempt.server.name}"
            lane.spans.append(axis.build_span("running", attempt.started_at, over, title, least=0.6))
        if attempt.finished_at:
            title = f"#{attempt.number} {attempt.state} at {over:%H:%M:%S} UTC: {attempt.reason}".rstrip(": ")
            lane.ends.append(Mark(attempt.state, axis.x(over), title))
        since = over
    if not step.child_execution and until > since and not (attempts and attempts[-1].finished_at is None):
        lane.spans.append(axis.build_span("waiting", since, until, "waiting for a worker"))
    if step.finished_at and (not attempts or attempts[-1].state != step.state):
        lane.ends.append(Mark(step.state, axis.x(step.finished_at), f"{step.state} at {step.finished_at:%H:%M:%S} UTC"))
