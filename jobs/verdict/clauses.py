"""Clauses and concerns. A clause has parts. A page turns them into links and counting times, and the API into text."""

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from controlplane.core.durations import describe_duration
from jobs.selectors import instance


class NamedServer(NamedTuple):
    id: UUID
    name: str


class Elapsed(NamedTuple):
    """Seconds that have passed since something happened."""

    seconds: float


class Remaining(NamedTuple):
    """Seconds until something happens."""

    seconds: float


class Moment(NamedTuple):
    at: datetime


class SomeJobs(NamedTuple):
    """Words for some jobs, with the filter of the list that shows them, or with the id of a single job."""

    words: str
    query: tuple[tuple[str, str], ...] = ()
    page: str = "jobs"
    only: str | None = None
    """Id of the job, if the words stand for one job."""


Part = str | NamedServer | Elapsed | Remaining | Moment | SomeJobs
Clause = tuple[Part, ...]
BAD, WORRY, NOTE = "bad", "worry", "note"


@dataclass(frozen=True)
class Concern:
    """Something that is not normal. It has the tone `note` if it is intended or only good to know."""

    kind: str
    tone: str
    parts: Clause
    jobs: int | None = None
    servers: int | None = None
    seconds: float | None = None
    """Seconds until the next change."""

    @property
    def text(self) -> str:
        return format_plain(self.parts)


def format_plain(parts: Clause) -> str:
    """Return a clause as text."""
    return "".join(format_part(part) for part in parts)


def format_part(part: Part) -> str:
    match part:
        case NamedServer():
            return part.name
        case Elapsed() | Remaining():
            return describe_duration(part.seconds)
        case Moment():
            return f"{part.at:%Y-%m-%d %H:%M} UTC"
        case SomeJobs():
            return part.words
        case _:
            return part


def count_of(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def count_jobs(count: int) -> str:
    return count_of(count, "job") if count else "no jobs"


def count_up_to_limit(jobs: int) -> str:
    """Return a number of jobs in words, with a + if they were not counted any further."""
    return f"{jobs:,}+ jobs" if jobs >= instance.COUNT_LIMIT else count_jobs(jobs)


SHOWN_OF_A_KIND = 3
"""Largest number of concerns of one kind that are shown one by one. If there are more, only their number is shown."""
