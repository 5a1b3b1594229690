"""Durations as people write them: 45, "45s", "5m", "24h", "30d", "none"."""

from decimal import Decimal

from controlplane.agent.durations import LONGEST_DURATION, UNITS, parse_duration

__all__ = [
    "LONGEST_DURATION",
    "LONGEST_WAIT",
    "describe_duration",
    "describe_exactly",
    "format_duration",
    "parse_duration",
]

LONGEST_WAIT = 366 * UNITS["d"]
"""Longest timeout, delay or silence that a caller may ask for, in seconds."""


def format_duration(value: float | None) -> str:
    """Return the shortest exact text for a number of seconds, such as `5m`. None gives `none`."""
    if value is None:
        return "none"
    unit = next((unit for unit in "dhm" if value and value % UNITS[unit] == 0), "s")
    return f"{Decimal(repr(value / UNITS[unit])).normalize():f}{unit}"


def describe_exactly(seconds: float) -> str:
    """Return a duration as text, with two decimals below 10 s and one decimal below 60 s."""
    if seconds < 10:
        return f"{max(0, seconds):.2f} s"
    return f"{seconds:.1f} s" if seconds < 60 else describe_duration(seconds)


def describe_duration(seconds: float) -> str:
    """Return a duration as text for people. console/static/controlplane/instance.js writes the same texts."""
    whole = max(0, int(seconds))
    for unit, size, part, below in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= size:
            rest = whole % size // below if whole < 10 * size else 0
            return f"{whole // size} {unit} {rest} {part}" if rest else f"{whole // size} {unit}"
    return f"{whole} s"
