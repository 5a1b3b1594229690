"""Durations as people write them: 45, "45s", "5m", "24h", "30d", "none"."""

from __future__ import annotations

import argparse
import re

UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
DURATION_PATTERN = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([smhd]?)\s*$", re.ASCII)
LONGEST_DURATION = 100 * 365 * UNITS["d"]


def parse_duration(value: object) -> float | None:
    """Return the seconds of a written duration, or None for "none".

    Raise ValueError with the wrong value and correct examples.
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


def duration(text: str) -> float:
    """Return the seconds of a duration on a command line. Raise argparse.ArgumentTypeError."""
    try:
        seconds = parse_duration(text)
    except ValueError:
        seconds = None
    if seconds is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration; write seconds, or 45s, 5m, 24h, 30d")
    return seconds
