"""Clauses in parts, of which a page makes links and running times and the API a text; and the concerns of clauses."""

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
    """Seconds that have passed."""

    seconds: float


class Remaining(NamedTuple):
    """Seconds to go."""

    seconds: float


class Moment(NamedTuple):
    at: datetime


class SomeJobs(NamedTuple):
    """Words for jobs that a list shows, and what it is filtered by."""

    words: str
    query: tuple[tuple[str, str], ...] = ()
    page: str = "jobs"


Part = str | NamedServer | Elapsed | Remaining | Moment | SomeJobs
Clause = tuple[Part, ...]
BAD, WORRY, NOTE = "bad", "worry", "note"


@dataclass(frozen=True)
class Concern:
    """Something that is not as on a quiet day. What is intended, or only worth knowing, has the tone `note`."""

    kind: str
    tone: str
    parts: Clause
    jobs: int | None = None
    servers: int | None = None
    seconds: float | None = None
    """To what happens next."""

    @property
    def text(self) -> str:
        return format_plain(self.parts)


def format_plain(parts: Clause) -> str:
    """A clause as a text."""
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
    """A number of jobs; of so many no more were counted."""
    return f"{jobs:,}+ jobs" if jobs >= instance.COUNT_LIMIT else count_jobs(jobs)


SHOWN_OF_A_KIND = 3
"""Of more it is said how many there are."""
