"""Dependency graph of an execution's steps. This module computes positions from rows, without database and HTML."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from controlplane.console.charts.folds import Fold, Row
from controlplane.console.doubt import doubt_about
from controlplane.console.formatting import shorten
from jobs import graph
from jobs.selectors.executions import Step
from jobs.states import JobState

BOX, BOX_HEIGHT, COLUMN, ROW = 160, 38, 204, 54
"""Width and height of a box, and the distances of columns and rows, in units of the drawing."""
KEY_LENGTH = 16
MOST_BOXES = 40
"""Largest number of boxes in a folded graph."""


def doubt_about_step(step: Step) -> str:
    """Return why a live step may not be running, or an empty text."""
    return doubt_about(step.state, step.server["state"] if step.server else None)


@dataclass(frozen=True)
class StepNode:
    """Box of one step or of several similar steps."""

    label: str
    title: str
    look: str
    """State that gives the colours."""
    has_ended_well: bool
    step: Step | None = None
    note: str = ""
    """Second line: how many items of a loop have ended, or why the step was skipped."""
    url: str = ""
    """Link that opens the fold."""


@dataclass(frozen=True)
class Box:
    """Node at its position."""

    node: StepNode
    x: int
    y: int

    @property
    def middle(self) -> int:
        return self.y + BOX_HEIGHT // 2


@dataclass(frozen=True)
class StepEdge:
    path: str
    is_passed: bool
    """True if the step at its start completed."""


@dataclass(frozen=True)
class Graph:
    boxes: list[Box]
    edges: list[StepEdge]
    width: int
    height: int


def build_graph(steps: Sequence[Step]) -> Graph:
    """Return the graph. Each step is to the right of all steps that it depends on."""
    return lay_out({step.step: describe_step(step) for step in steps}, {step.step: step.depends_on for step in steps})


def build_folded_graph(
    rows: Sequence[Row], url_of: Callable[[Fold], str], details: Mapping[UUID, Step], needs: Mapping[str, Sequence[str]]
) -> Graph | None:
    """Return the graph with one box for similar steps. `needs` are the labels of the boxes that each box depends on.

    Return None if there are too many boxes, or if folding makes boxes depend on each other in a circle.
    """
    names = [row.label if isinstance(row, Fold) else row.step for row in rows]
    known = {name: [on for on in needs.get(name, ()) if on in names] for name in names}
    if len(rows) > MOST_BOXES or graph.dependency_problems(known):
        return None
    nodes = (
        describe_fold(row, url_of(row)) if isinstance(row, Fold) else describe_step(details[row.job]) for row in rows
    )
    return lay_out(dict(zip(names, nodes, strict=True)), known)


def describe_step(step: Step) -> StepNode:
    doubt = doubt_about_step(step)
    note = describe_items(step) or describe_skip(step)
    title = ", ".join([f"{step.step}: {step.state}", *filter(None, (doubt, note))])
    look = "SILENT" if doubt else step.state
    return StepNode(shorten(step.step, KEY_LENGTH), title, look, step.state == JobState.COMPLETED, step, note)


def describe_items(step: Step) -> str:
    """Return how many items of a loop have ended, or an empty text for another step."""
    if step.progress is None:
        return ""
    failed = f", {step.progress['failed']:,} failed" if step.progress["failed"] else ""
    return f"{step.progress['done']:,} of {step.progress['total']:,} done{failed}"


SKIPPED_BECAUSE = {
    "CONDITION_FALSE": "condition is false",
    "STEP_TIMEOUT": "waited too long",
    "STEP_SKIPPED": "a step before failed",
}


def describe_skip(step: Step) -> str:
    """Return why a step was skipped, or an empty text if it was not."""
    if step.state != JobState.SKIPPED or not step.error:
        return ""
    if step.error.get("cause"):
        return "a step before skipped"
    return SKIPPED_BECAUSE.get(step.error["code"], "")


def describe_fold(fold: Fold, url: str) -> StepNode:
    count = f" × {fold.number:,}"
    label = shorten(fold.label, KEY_LENGTH - len(count)) + count
    title = f"{fold.label}: " + ", ".join(f"{number:,} {state}" for state, number in fold.counts)
    state, _, doubt = fold.counts[0][0].partition(", ")
    look = "SILENT" if doubt else "COMPLETED" if state == "kept" else state
    return StepNode(label, title, look, all(step.state == JobState.COMPLETED for step in fold.rows), url=url)


def lay_out(nodes: Mapping[str, StepNode], needs: Mapping[str, Sequence[str | None]]) -> Graph:
    known = {key: [on for on in needs[key] if on is not None and on in nodes] for key in nodes}
    rank = graph.step_ranks(known)
    filled: dict[int, int] = {}
    boxes = {}
    for key, node in nodes.items():
        column = rank[key]
        row = filled[column] = filled.get(column, -1) + 1
        boxes[key] = Box(node, column * COLUMN, row * ROW)
    edges = [
        StepEdge(draw_curve(boxes[on], boxes[key]), nodes[on].has_ended_well)
        for key, before in known.items()
        for on in before
    ]
    width = (max(rank.values(), default=0)) * COLUMN + BOX
    height = max(filled.values(), default=0) * ROW + BOX_HEIGHT
    return Graph(list(boxes.values()), sorted(edges, key=lambda edge: edge.is_passed), width, height)


def draw_curve(before: Box, after: Box) -> str:
    left, right = before.x + BOX, after.x - 4
    bend = (right - left) // 2
    return f"M{left} {before.middle}C{left + bend} {before.middle} {right - bend} {after.middle} {right} {after.middle}"
