"""Durations as people write them: 45, "45s", "5m", "24h", "30d", "none"."""

import re

UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
WRITTEN = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([smhd]?)\s*$")


def seconds(value: object) -> float | None:
    """Seconds of a written duration; None for "none".

    Raises ValueError with what was wrong and what would be right.
    """
    if value is None or (isinstance(value, str) and value.strip().lower() == "none"):
        return None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str) and (match := WRITTEN.match(value)):
        return float(match[1]) * UNITS[match[2]]
    raise ValueError(f'{value!r} is not a duration; write seconds or 45s, 5m, 24h, 30d, "none"')


def written(value: float | None) -> str:
    """The shortest exact way to write a number of seconds."""
    if value is None:
        return "none"
    for unit in ("d", "h", "m"):
        if value and value % UNITS[unit] == 0:
            return f"{value / UNITS[unit]:g}{unit}"
    return f"{value:g}s"
