"""Clients hand in work."""

import hashlib
import json
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import orjson
import structlog
from django.db import transaction

from jobs import tags
from jobs.conf import conf
from jobs.errors import KeyTaken, NoFreshWorkers, TryAgain
from jobs.models import WorkerJob
from jobs.sql import sql
from jobs.states import JobKind, RetryBackoff, Unmatched
from liveness.conf import conf as liveness_conf
from liveness.models import ApiToken

log = structlog.get_logger()

UNPRINTED = {"key", "require_worker"}
"""How a job is submitted, not what it is: no part of its fingerprint."""


@transaction.atomic
def submit(owner: ApiToken | None, jobs: list[dict[str, Any]], kind: JobKind = JobKind.TASK) -> list[tuple[UUID, bool]]:
    """All or none of these jobs: the id of each, in order, and whether it is new. No owner: a trigger's.

    The same key again finds the same job. Raises KeyTaken when its content is another, and NoFreshWorkers when a new
    one requires a worker and none is eligible now, however full.
    """
    drafts = list(written(jobs))
    stored = sql.rows(
        "submit",
        owner=owner and owner.pk,
        kind=kind,
        jobs=dumped(drafts),
        staleness_multiplier=liveness_conf().staleness_multiplier,
    )
    ids = {row.place: row.id for row in stored}
    known = [draft for draft in drafts if draft["place"] not in ids]
    # A statement of its own: it also sees what a concurrent submission of the same key has just committed.
    holders = WorkerJob.objects.filter(owner=owner, key__in=[draft["key"] for draft in known]) if known else []
    by_key = {job.key: job for job in holders}
    for draft in known:
        job = by_key.get(draft["key"])
        if job is None:
            raise TryAgain
        if bytes(job.fingerprint).hex() != draft["fingerprint"]:
            raise KeyTaken(f"The key {job.key!r} was used before, for a job with other content.", job=str(job.pk))
    refuse_deserted(stored)
    return [(ids.get(place) or by_key[draft["key"]].pk, place in ids) for place, draft in enumerate(drafts)]


def refuse_deserted(stored: list[Any]) -> None:
    """Take all back where one of them requires a worker and finds none. Raises NoFreshWorkers."""
    if deserted := sum(row.is_deserted for row in stored):
        log.warning(NoFreshWorkers.__doc__, reason=NoFreshWorkers.code, jobs=deserted)
        raise NoFreshWorkers


def written(jobs: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The rows to store."""
    for place, job in enumerate(jobs):
        yield {"place": place, "key": job.get("key"), **content(job)}


def content(job: dict[str, Any]) -> dict[str, Any]:
    """What a job is, with the defaults of what it does not say."""
    return {
        "fingerprint": fingerprint(job),
        "action": job["action"],
        "payload": job.get("payload"),
        "tags": job.get("tags", []),
        "required_tags": tags.required(job["action"], job.get("tags", [])),
        "priority": job.get("priority", 0),
        "timeout_seconds": job.get("timeout_seconds", conf().default_timeout),
        "on_worker_lost": job.get("on_worker_lost", conf().on_worker_lost),
        "unmatched": job.get("unmatched", Unmatched.FAIL),
        "max_retries": job.get("max_retries", 0),
        "retry_delay_seconds": job.get("retry_delay_seconds", 0),
        "retry_backoff": job.get("retry_backoff", RetryBackoff.FIXED),
        "retry_on": job.get("retry_on"),
        "good_until": job.get("good_until"),
        "available_at": job.get("available_at"),
        "require_worker": job.get("require_worker", False),
    }


def fingerprint(submitted: dict[str, Any]) -> str:
    """SHA-256 of what was submitted, in hexadecimal: whether it is the same again."""
    kept = {field: value for field, value in submitted.items() if field not in UNPRINTED}
    return hashlib.sha256(dumped(kept).encode()).hexdigest()


def dumped(data: Any) -> str:
    """JSON with sorted keys."""
    try:
        return orjson.dumps(data, option=orjson.OPT_SORT_KEYS).decode()
    except TypeError:  # a whole number beyond 64 bits: as such PostgreSQL keeps a large float
        return json.dumps(data, sort_keys=True, default=str)
