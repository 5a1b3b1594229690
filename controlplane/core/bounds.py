"""Bounds of times, numbers, durations and texts from outside, and arithmetic that stays within them.

`controlplane.core.rest` and the form fields take their limits from here, so that each field has one. Rows that were
stored earlier may be out of bounds. So pages compute with `moment_after`, which raises no errors.
"""

import math
from datetime import UTC, datetime, timedelta

from controlplane.core.durations import LONGEST_WAIT as LONGEST_WAIT

EARLIEST = datetime(1, 1, 2, tzinfo=UTC)
LATEST = datetime(9999, 12, 30, tzinfo=UTC)
"""Earliest and latest time that is a valid date in every time zone. Python has no dates before the year 1 or after
9999."""
LARGEST_NUMBER = 1e15
"""Largest magnitude of a number in computations. The sum of a thousand such numbers is still exact to the unit."""
INT32 = (-(2**31), 2**31 - 1)
"""Range of a PostgreSQL integer."""
LARGEST_ID = 2**63 - 1
"""Largest PostgreSQL bigint, the type of row and line numbers."""
TAGS_BYTES = 1700
"""Largest size of a job's tags in bytes, including 8 bytes for each tag.

The tags are in an index, and PostgreSQL indexes no row above 2,704 bytes.
"""
TEXT_LENGTH = 255
NOTE_LENGTH = 1000


def clamp_moment(at: datetime) -> datetime:
    """Return the time in UTC, moved to the nearest bound if it is out of bounds. A naive time is in UTC."""
    try:
        moment = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except OverflowError:
        moment = EARLIEST if at.year == 1 else LATEST
    return min(max(moment, EARLIEST), LATEST)


def moment_after(at: datetime, seconds: float) -> datetime:
    """Return the time `seconds` after `at`, within the bounds. A negative number gives an earlier time."""
    try:
        return clamp_moment(at + timedelta(seconds=seconds))
    except (OverflowError, ValueError):  # too many seconds, or not a number
        return EARLIEST if seconds < 0 else LATEST


def clamp_number(value: object, least: float, most: float) -> float:
    """Return a number from a server, clamped to what pages can show. Return `least` if the value is not a number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        return least
    return min(max(value, least), most)
