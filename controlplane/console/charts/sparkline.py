"""Sparkline: SVG path of the last hour of one figure, as a small line with a filled area."""

from collections.abc import Sequence
from typing import NamedTuple

WIDTH, HEIGHT, MARGIN = 100, 28, 3


class Sparkline(NamedTuple):
    """Paths in a box of 100 × 28 units."""

    line: str
    area: str


def draw_sparkline(values: Sequence[float | None]) -> Sparkline | None:
    """Return the line through these values, or None if fewer than two are known. Unknown values leave no gap."""
    known = [(place, value) for place, value in enumerate(values) if value is not None]
    if len(known) < 2:
        return None
    first, last = known[0][0], known[-1][0]
    top = max(value for _, value in known) or 1
    points = [
        (WIDTH * (place - first) / (last - first), HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * value / top)
        for place, value in known
    ]
    path = "L".join(f"{x:.4g} {y:.4g}" for x, y in points)
    return Sparkline(f"M{path}", f"M0 {HEIGHT}L{path}L{WIDTH} {HEIGHT}z")
