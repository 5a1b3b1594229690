"""Refuses a submission after its rows were stored. The rows show the obstacle, and the error removes them again."""

from collections.abc import Iterable, Sequence, Set
from typing import Protocol

from controlplane.core.json_bodies import read_json
from jobs.errors import (
    PROBLEMS_BY_FILTER,
    NoFreshWorkers,
    NoRunner,
    OnHold,
    QuotaExceeded,
    TooManyTagSets,
    TooManyWaiting,
)
from liveness.services import detection


class Stored(Protocol):
    """Row with the number of bytes that its owner stores."""

    @property
    def stored(self) -> int: ...


class CountedSets(Protocol):
    """Row with the number of sets of tags of an owner's waiting jobs."""

    @property
    def tag_sets(self) -> int: ...


class SubmittedRow(CountedSets, Protocol):
    """Row of a submitted job or execution."""

    @property
    def missing_worker(self) -> str | None: ...
    @property
    def waiting(self) -> int: ...
    @property
    def without_worker(self) -> str | None: ...


class HeldRow(Protocol):
    """Row of a submitted job with the hold that refuses it, as JSON."""

    @property
    def on_hold(self) -> str | None: ...


def refuse_on_hold(rows: Iterable[HeldRow]) -> None:
    """Raise OnHold for the first job that a hold refuses."""
    for row in rows:
        if row.on_hold is not None:
            hold = read_json(row.on_hold)
            raise build_refusal(hold["id"], hold["kind"], hold["value"], hold["note"])


def build_refusal(hold: object, kind: str, value: str, note: str) -> OnHold:
    reason = note or "There is no note."
    return OnHold(f"The {kind} {value} is on hold, and new jobs are refused. {reason}", hold=str(hold), note=note)


def refuse_without_worker(rows: Iterable[SubmittedRow]) -> None:
    """Raise the problem of the first row that requires a worker and finds none (`missing_worker`)."""
    for row in rows:
        if row.missing_worker is not None:
            missing = read_json(row.missing_worker)
            filter, tags = missing["filter"], missing["tags"]
            problem = PROBLEMS_BY_FILTER.get(filter, NoFreshWorkers)
            if filter == "freshness":
                detection.log_stale_workers()
            detail = "" if filter == "freshness" else f"{problem.__doc__}: {', '.join(tags)} ({filter})."
            raise problem(detail, filter=filter, required_tags=tags)


def refuse_without_runner(rows: Sequence[SubmittedRow], runners: Iterable[Set[tuple[str, ...]]]) -> None:
    """Raise NoRunner for the first submitted job whose runner (one of `runners`) no worker has."""
    if not rows or rows[0].without_worker is None:
        return
    missing = set(map(tuple, read_json(rows[0].without_worker)))
    for asked in runners:
        for tags in sorted(asked & missing):
            raise NoRunner(
                f"No worker of the fleet takes this action: none has the tags {', '.join(tags)}. Start a worker that"
                ' has them, or submit the job with "unmatched": "wait".',
                required_tags=tags,
            )


def refuse_too_many(stored: Iterable[SubmittedRow], number: int, limit: int | None) -> None:
    """Raise TooManyWaiting if `number` more jobs than the `waiting` ones of the rows are above the limit."""
    for row in stored:
        if limit is not None and row.waiting + number > limit:
            raise TooManyWaiting(f"{TooManyWaiting.__doc__} The limit is {limit}.", waiting=row.waiting, limit=limit)


def refuse_too_many_tag_sets(stored: Iterable[CountedSets], limit: int | None, submitted: int = 0) -> None:
    """Raise TooManyTagSets if the waiting jobs, or the `submitted` number of sets, are above the limit."""
    sets = max(submitted, *(row.tag_sets for row in stored), 0)
    if limit is not None and sets > limit:
        raise TooManyTagSets(
            f"With this submission your waiting jobs would have {sets} or more different sets of tags; the limit is"
            f" {limit} (WAITING_TAG_SETS_LIMIT), because each set slows pages and sweeps. Submit more once some jobs"
            " have started, or give jobs fewer different tags.",
            limit=limit,
        )


ROOM_AGAIN_AFTER = 60
"""Seconds. Only retention, or an operator who raises the limit, makes room."""


def refuse_over_quota(rows: Iterable[Stored], limit: int | None) -> None:
    """Raise QuotaExceeded if an owner would store more than `limit` bytes; `stored` includes the new rows."""
    for row in rows:
        if limit is not None and row.stored > limit:
            raise QuotaExceeded(
                f"With this submission your jobs would fill {row.stored} bytes; the limit is {limit}"
                " (STORED_BYTES_LIMIT). Jobs that have ended make room when they are past their retention.",
                stored=row.stored,
                limit=limit,
                retry_after=ROOM_AGAIN_AFTER,
            )
