"""Drawing of a server's state machine: the current state, the path to it, and the time in each state.

liveness/states.py defines the legal edges. layouts.py defines their positions.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from controlplane.console.charts.layouts import TALL, WIDE, Layout
from controlplane.console.formatting import format_time_of_day
from controlplane.core.durations import describe_duration
from liveness import states
from liveness.selectors.servers import TimedServer
from liveness.states import ServerState

NODE, LINE, LETTER = 44, 14, 7.4
"""Height of a state with two lines of text, height of a line, and width of a letter, in units of the drawing."""


@dataclass(frozen=True)
class Entry:
    """Last time that the server entered a state, and how often it did if more than once."""

    at: datetime
    words: str
    times: str


@dataclass(frozen=True)
class StateNode:
    state: ServerState
    x: int
    y: int
    width: int
    lit: str
    """State that gives the colours if this is the current state, otherwise empty. A silent server is not drawn as
    running."""
    entered: Entry | None

    @property
    def lines(self) -> list[tuple[str, int]]:
        """Return the lines of text with their positions: the name (in two lines if long), and the time of the entry."""
        is_long = len(self.state) * LETTER > self.width
        first, _, rest = self.state.partition("_")
        words = [
            *([f"{first}_", rest] if is_long and rest else [self.state]),
            *([self.entered.words] if self.entered else []),
        ]
        start = self.y + 4 - LINE * (len(words) - 1) // 2
        return [(word, start + LINE * place) for place, word in enumerate(words)]

    @property
    def height(self) -> int:
        return NODE + LINE * max(0, len(self.lines) - 2)

    @property
    def top(self) -> int:
        return self.y - self.height // 2

    @property
    def middle(self) -> int:
        return self.x + self.width // 2


@dataclass(frozen=True)
class StateEdge:
    path: str
    label: str
    x: int
    y: int
    anchor: str
    is_passed: bool
    title: str


@dataclass(frozen=True)
class Drawing:
    layout: Layout
    nodes: list[StateNode]
    edges: list[StateEdge]


@dataclass(frozen=True)
class Machine:
    drawings: list[Drawing]
    description: str
    """States that the server went through, in words."""


def build_machine(server: TimedServer, events: Iterable[Any]) -> Machine:
    """Return the drawing of a server with its state changes, oldest first."""
    entered: dict[str, datetime] = {ServerState.CREATED.value: server.created_at}
    times, passed, way = Counter([ServerState.CREATED.value]), {}, [(ServerState.CREATED.value, server.created_at)]
    since = server.created_at
    for event in events:
        title = f"{event.from_state} → {event.to_state} at {event.at:%Y-%m-%d %H:%M:%S} UTC"
        passed[find_edge(event.from_state, event.to_state)] = format_seconds((event.at - since).total_seconds()), title
        entered[event.to_state], since = event.at, event.at
        times[event.to_state] += 1
        way.append((event.to_state, event.at))
    when = {
        state: Entry(at, format_time_of_day(at, server.now), f" ({times[state]}×)" if times[state] > 1 else "")
        for state, at in entered.items()
    }
    lit = {server.state: "SILENT" if server.silent else server.state}
    drawings = [build_drawing(layout, lit, when, passed) for layout in (WIDE, TALL)]
    return Machine(
        drawings, ", then ".join(f"{state} at {format_time_of_day(at, server.now)}" for state, at in way[-6:])
    )


def build_drawing(
    layout: Layout, lit: dict[str, str], when: dict[str, Entry], passed: dict[Any, tuple[str, str]]
) -> Drawing:
    nodes = [StateNode(state, *place, lit.get(state, ""), when.get(state)) for state, place in layout.places.items()]
    ways = {**layout.ways, **{pair: way for pair, way in layout.back.items() if pair in passed}}
    edges = [
        StateEdge(path, label, x, y, anchor, pair in passed, title)
        for pair, (path, x, y, anchor) in ways.items()
        for label, title in [passed.get(pair, ("", ""))]
    ]
    return Drawing(layout, nodes, sorted(edges, key=lambda edge: edge.is_passed))


def find_edge(from_: str, to: str) -> tuple[ServerState | None, ServerState]:
    """Return both ends of the arrow in the chart of states that shows a change.

    For the loss of an alive server the first end is None, because one arrow stands for all alive states.
    """
    before, after = ServerState(from_), ServerState(to)
    return (None, after) if before in states.ALIVE and after not in states.ALIVE else (before, after)


def format_seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 9.95 else describe_duration(seconds)
