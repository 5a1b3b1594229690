"""The steps of an execution as a graph of what waits for what: rows in, geometry out. No database, no HTML."""

from collections.abc import Sequence
from dataclasses import dataclass

from controlplane.console.presenters.formatting import shorten
from controlplane.console.presenters.jobs import doubt_about
from jobs import graph
from jobs.execution_selectors import Step
from jobs.states import JobState

BOX, BOX_HEIGHT, COLUMN, ROW = 160, 38, 204, 54
"""Of the box of a step, and from one column, or row, to the next; units of the drawing."""
KEY_LENGTH = 16


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
