"""The steps of an execution as a graph of what waits for what: rows in, geometry out. No database, no HTML."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from controlplane.console.charts.folds import Fold, Row
from controlplane.console.presenters.formatting import shorten
from controlplane.console.presenters.jobs import doubt_about
from jobs import graph
from jobs.selectors.executions import Step
from jobs.sql.rows.executions import StepTimes
from jobs.states import JobState

BOX, BOX_HEIGHT, COLUMN, ROW = 160, 38, 204, 54
"""Of the box of a step, and from one column, or row, to the next; units of the drawing."""
KEY_LENGTH = 16
MOST_BOXES = 40
"""Of those that are alike, and of steps beside them."""


def doubt_about_step(step: Step) -> str:
    """Why a step that a server has is not known to run."""
    return doubt_about(step.state, step.server["state"] if step.server else None)


@dataclass(frozen=True)
class Node:
    """What has a box: a step, or those that are alike."""

    label: str
    title: str
    look: str
    """The state whose colours it has."""
    has_ended_well: bool
    step: Step | None = None
    url: str = ""
    """Where those that are alike are shown each for itself."""


@dataclass(frozen=True)
class Box:
    """A node in its place."""

    node: Node
    x: int
    y: int

    @property
    def middle(self) -> int:
        return self.y + BOX_HEIGHT // 2


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
    return lay_out({step.step: describe_step(step) for step in steps}, {step.step: step.depends_on for step in steps})


def build_folded_graph(
    rows: Sequence[Row], url_of: Callable[[Fold], str], details: Mapping[UUID, Step]
) -> Graph | None:
    """The same with a box for those that are alike. None: there are still too many, or one box would stand both before
    and after another."""
    members = {row.label if isinstance(row, Fold) else row.step: members_of(row) for row in rows}
    box_of = {step.job: name for name, steps in members.items() for step in steps}
    needs = {
        name: sorted({box_of[on] for step in steps for on in step.needs if on in box_of} - {name})
        for name, steps in members.items()
    }
    if len(rows) > MOST_BOXES or graph.dependency_problems(needs):
        return None
    nodes = (
        describe_fold(row, url_of(row)) if isinstance(row, Fold) else describe_step(details[row.job]) for row in rows
    )
    return lay_out(dict(zip(members, nodes, strict=True)), needs)


def members_of(row: Row) -> Sequence[StepTimes]:
    return row.steps if isinstance(row, Fold) else [row]


def describe_step(step: Step) -> Node:
    doubt = doubt_about_step(step)
    title = f"{step.step}: {step.state}" + (f", {doubt}" if doubt else "")
    look = "SILENT" if doubt else step.state
    return Node(shorten(step.step, KEY_LENGTH), title, look, step.state == JobState.COMPLETED, step)


def describe_fold(fold: Fold, url: str) -> Node:
    count = f" × {len(fold.steps):,}"
    label = shorten(fold.label, KEY_LENGTH - len(count)) + count
    title = f"{fold.label}: " + ", ".join(f"{number:,} {state}" for state, number in fold.counts)
    state, _, doubt = fold.counts[0][0].partition(", ")
    look = "SILENT" if doubt else "COMPLETED" if state == "kept" else state
    return Node(label, title, look, all(step.state == JobState.COMPLETED for step in fold.steps), url=url)


def lay_out(nodes: Mapping[str, Node], needs: Mapping[str, Sequence[str | None]]) -> Graph:
    known = {key: [on for on in needs[key] if on is not None and on in nodes] for key in nodes}
    rank = graph.step_ranks(known)
    filled: dict[int, int] = {}
    boxes = {}
    for key, node in nodes.items():
        column = rank[key]
        row = filled[column] = filled.get(column, -1) + 1
        boxes[key] = Box(node, column * COLUMN, row * ROW)
    edges = [
        Edge(draw_curve(boxes[on], boxes[key]), nodes[on].has_ended_well)
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
