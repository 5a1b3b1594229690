"""Durations as people write them: 45, "45s", "5m", "24h", "30d", "none"."""

import re
from decimal import Decimal

UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
DURATION_PATTERN = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([smhd]?)\s*$", re.ASCII)
LONGEST_DURATION = 100 * 365 * UNITS["d"]
LONGEST_WAIT = 366 * UNITS["d"]
"""Of what somebody asks for in seconds: a timeout, a delay, a silence."""


def parse_duration(value: object) -> float | None:
    """Seconds of a written duration; None for "none".

    Raises ValueError with what was wrong and what would be right.
    """
    if value is None or (isinstance(value, str) and value.strip().lower() == "none"):
        return None
    number = None
    if isinstance(value, int | float) and not isinstance(value, bool):
        number = float(value)
    elif isinstance(value, str) and (match := DURATION_PATTERN.match(value)):
        number = float(match[1]) * UNITS[match[2]]
    if number is None or not abs(number) <= LONGEST_DURATION:
        raise ValueError(
            f'{value!r} is not a duration; write seconds or 45s, 5m, 24h, 30d, "none", at most a hundred years'
        )
    return number


def format_duration(value: float | None) -> str:
    """The shortest exact way to write a number of seconds."""
    if value is None:
        return "none"
    unit = next((unit for unit in "dhm" if value and value % UNITS[unit] == 0), "s")
    return f"{Decimal(repr(value / UNITS[unit])).normalize():f}{unit}"


def describe_exactly(seconds: float) -> str:
    """A length of time with as many decimals as say something."""
    if seconds < 10:
        return f"{max(0, seconds):.2f} s"
    return f"{seconds:.1f} s" if seconds < 60 else describe_duration(seconds)


def describe_duration(seconds: float) -> str:
    """A length of time as people say it. console/static/controlplane/instance.js says it alike."""
    whole = max(0, int(seconds))
    for unit, size, part, below in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= size:
            rest = whole % size // below if whole < 10 * size else 0
            return f"{whole // size} {unit} {rest} {part}" if rest else f"{whole // size} {unit}"
    return f"{whole} s"
