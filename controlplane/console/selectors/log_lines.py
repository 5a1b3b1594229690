"""Log lines of a job, one page at a time: the last matching lines, and the lines that came later."""

from typing import NamedTuple
from uuid import UUID

from jobs.sql import sql
from jobs.sql.rows.selectors import FoundLine

LINES_SHOWN, LOOKED_AT = 500, 20_000
"""Largest number of lines on a page, and of lines that one search reads."""
BEYOND_ALL = 2**63 - 1


class LogLines(NamedTuple):
    lines: list[FoundLine]
    """Oldest first."""
    earlier: int | None
    """Line number before which more lines may match. None means that there are none."""
    last: int
    """Line number after which new lines may follow."""
    is_full: bool
    """True if more lines may match than were returned."""


def find_lines_before(
    job: UUID, before: int | None, attempt: int | None, stream: str | None, holds: str | None
) -> LogLines:
    """Return the last matching lines before a line number, or the last of all lines."""
    looked_at = count_looked_at(stream, holds)
    rows = sql.find_log_lines_before.fetch_rows(
        job=job, before=before or BEYOND_ALL, attempt=attempt, stream=stream, holds=holds, looked_at=looked_at,
        limit=LINES_SHOWN + 1,
    )  # fmt: skip
    found = [row for row in rows if row.id is not None]
    last = rows[0].last or 0
    if len(found) > LINES_SHOWN:
        return LogLines(found[LINES_SHOWN - 1 :: -1], found[LINES_SHOWN - 1].id, last, is_full=True)
    return LogLines(found[::-1], rows[0].first if rows[0].looked == looked_at else None, last, is_full=False)


def find_lines_after(job: UUID, after: int, attempt: int | None, stream: str | None, holds: str | None) -> LogLines:
    """Return the first matching lines after a line number."""
    looked_at = count_looked_at(stream, holds)
    rows = sql.find_log_lines_after.fetch_rows(
        job=job, after=after, attempt=attempt, stream=stream, holds=holds, looked_at=looked_at, limit=LINES_SHOWN + 1
    )
    found = [row for row in rows if row.id is not None]
    if len(found) > LINES_SHOWN:
        return LogLines(found[:LINES_SHOWN], None, found[LINES_SHOWN - 1].id or after, is_full=True)
    return LogLines(found, None, rows[0].last or after, is_full=rows[0].looked == looked_at)


def count_looked_at(stream: str | None, holds: str | None) -> int:
    """Return how many lines to read: one more than a page if every line matches."""
    return LOOKED_AT if stream or holds else LINES_SHOWN + 1
