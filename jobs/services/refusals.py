"""What is stored of a submission says what is in its way; here it is refused for that, and all is taken back."""

from collections.abc import Iterable, Sequence, Set
from typing import Protocol

import orjson

from jobs.errors import PROBLEMS_BY_FILTER, NoFreshWorkers, NoRunner, TooManyWaiting


class Submitted(Protocol):
    """A row of what was submitted, a job or an execution."""

    @property
    def missing_worker(self) -> str | None: ...
    @property
    def waiting(self) -> int: ...
    @property
    def without_worker(self) -> str | None: ...


def refuse_without_worker(rows: Iterable[Submitted]) -> None:
    """Raises what is in the way of the first row that requires a worker and finds none: `missing_worker`."""
    for row in rows:
        if row.missing_worker is not None:
            missing = orjson.loads(row.missing_worker)
            filter, tags = missing["filter"], missing["tags"]
            problem = PROBLEMS_BY_FILTER.get(filter, NoFreshWorkers)
            detail = "" if filter == "freshness" else f"{problem.__doc__}: {', '.join(tags)} ({filter})."
            raise problem(detail, filter=filter, required_tags=tags)


def refuse_without_runner(rows: Sequence[Submitted], runners: Iterable[Set[tuple[str, ...]]]) -> None:
    """Raises NoRunner for the first of what was submitted that asks for one of the `runners` which no worker takes."""
    if not rows or rows[0].without_worker is None:
        return
    missing = set(map(tuple, orjson.loads(rows[0].without_worker)))
    for asked in runners:
        for tags in sorted(asked & missing):
            raise NoRunner(
                f"No worker of the fleet takes this action: none has the tags {', '.join(tags)}. Start one that does,"
                ' or submit it with "unmatched": "wait".',
                required_tags=tags,
            )


def refuse_too_many(stored: Iterable[Submitted], number: int, limit: int | None) -> None:
    """Raises TooManyWaiting when with `number` more the `limit` is passed: `waiting` of the rows wait already."""
    for row in stored:
        if limit is not None and row.waiting + number > limit:
            raise TooManyWaiting(f"{TooManyWaiting.__doc__} The limit is {limit}.", waiting=row.waiting, limit=limit)
