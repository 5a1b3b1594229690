"""The state machine of a server as a drawing: where it is, which way it came, and how long it was where.

The legal edges are those of liveness/states.py; here is only where each is drawn.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from liveness import states
from liveness.pages.words import duration
from liveness.states import ServerState

WIDTH, HEIGHT, NODE = 940, 262, 44
"""Of the drawing, and how high a state is; units of its own coordinates."""
_ = ServerState

PLACES: dict[ServerState, tuple[int, int, int]] = {
    _.CREATED: (22, 58, 132),
    _.RUNNING: (22, 134, 132),
    _.MAINTENANCE: (22, 210, 132),
    _.DISCONNECTED: (240, 58, 140),
    _.TERMINATING: (240, 134, 140),
    _.ERROR: (240, 210, 140),
    _.TERMINATED_GRACEFULLY: (448, 96, 186),
    _.TERMINATED_FORCED: (448, 172, 186),
    _.NOT_RUNNING: (694, 134, 120),
    _.INACTIVE: (860, 134, 76),
}
"""Left edge, middle and width of each."""

WAYS: dict[tuple[ServerState | None, ServerState], tuple[str, int, int, str]] = {
    (_.CREATED, _.RUNNING): ("M88 80V108", 94, 98, "start"),
    (_.RUNNING, _.MAINTENANCE): ("M72 156V184", 66, 174, "end"),
    (_.MAINTENANCE, _.RUNNING): ("M104 188V160", 110, 174, "start"),
    (None, _.DISCONNECTED): ("M166 58H236", 200, 51, "middle"),
    (None, _.TERMINATING): ("M166 134H236", 200, 127, "middle"),
    (None, _.ERROR): ("M166 210H236", 200, 203, "middle"),
    (_.DISCONNECTED, _.TERMINATING): ("M310 80V108", 316, 98, "start"),
    (_.ERROR, _.TERMINATING): ("M310 188V160", 316, 178, "start"),
    (_.TERMINATING, _.TERMINATED_GRACEFULLY): ("M380 124C412 118 412 98 444 96", 414, 96, "middle"),
    (_.TERMINATING, _.TERMINATED_FORCED): ("M380 144C412 150 412 170 444 172", 414, 182, "middle"),
    (_.TERMINATING, _.NOT_RUNNING): ("M380 134H690", 540, 130, "middle"),
    (_.TERMINATED_GRACEFULLY, _.NOT_RUNNING): ("M634 96C664 98 660 122 690 126", 668, 96, "middle"),
    (_.TERMINATED_FORCED, _.NOT_RUNNING): ("M634 172C664 170 660 146 690 142", 668, 182, "middle"),
    (_.DISCONNECTED, _.NOT_RUNNING): ("M380 58H734Q754 58 754 78V108", 540, 51, "middle"),
    (_.ERROR, _.NOT_RUNNING): ("M380 210H734Q754 210 754 190V160", 540, 226, "middle"),
    (_.NOT_RUNNING, _.INACTIVE): ("M814 134H856", 836, 127, "middle"),
}
"""Where each edge is drawn, and where its time stands. From None: from whichever state it was alive in."""

BACK = "M{x} {y}C{x} 4 88 4 88 26"
"""Reactivation: the way back, over everything."""


@dataclass(frozen=True)
class Node:
    state: str
    x: int
    y: int
    width: int
    lit: str
    """Its colours, if it is the present one: those of the badge, so that a silent server is not drawn as running."""
    entered: str
    """When it was last entered; empty: never."""
    times: int

    @property
    def top(self) -> int:
        return self.y - NODE // 2

    @property
    def middle(self) -> int:
        return self.x + self.width // 2


@dataclass(frozen=True)
class Edge:
    path: str
    label: str
    x: int
    y: int
    anchor: str
    is_passed: bool
    title: str


@dataclass(frozen=True)
class Drawing:
    nodes: list[Node]
    edges: list[Edge]
    told: str
    """The way it came, in words."""


def drawing(server: Any, events: Iterable[Any]) -> Drawing:
    """The machine of a server with its transitions, oldest first."""
    entered: dict[str, datetime] = {ServerState.CREATED.value: server.created_at}
    times, passed, way = Counter([ServerState.CREATED.value]), {}, [(ServerState.CREATED.value, server.created_at)]
    since, titles = server.created_at, {}
    for event in events:
        edge = key(event.from_state, event.to_state)
        titles[edge] = f"{event.from_state} → {event.to_state} at {event.at:%Y-%m-%d %H:%M:%S} UTC"
        passed[edge] = said((event.at - since).total_seconds())
        entered[event.to_state], since = event.at, event.at
        times[event.to_state] += 1
        way.append((event.to_state, event.at))
    lit = "LATE" if server.late else server.state
    nodes = [
        Node(
            state,
            *place,
            lit if state == server.state else "",
            f"{entered[state]:%H:%M:%S}" if state in entered else "",
            times[state],
        )
        for state, place in PLACES.items()
    ]
    ways = {**WAYS, **{pair: ways_back(pair[0]) for pair in passed if pair not in WAYS}}
    edges = [
        Edge(path, passed.get(pair, ""), x, y, anchor, pair in passed, titles.get(pair, ""))
        for pair, (path, x, y, anchor) in ways.items()
    ]
    told = ", then ".join(f"{state} at {at:%H:%M:%S}" for state, at in way[-6:])
    return Drawing(nodes, sorted(edges, key=lambda edge: edge.is_passed), told)


def key(from_: str, to: str) -> tuple[ServerState | None, ServerState]:
    """Which of the drawn edges a transition is."""
    before, after = ServerState(from_), ServerState(to)
    return (None, after) if before in states.ALIVE and after not in states.ALIVE else (before, after)


def said(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 9.95 else duration(seconds)


def ways_back(before: ServerState | None) -> tuple[str, int, int, str]:
    left, y, width = PLACES[before or ServerState.DISCONNECTED]
    return BACK.format(x=left + width // 2, y=y - NODE // 2), left, 16, "middle"
