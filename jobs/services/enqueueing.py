"""Stores jobs of the project's own code whose only new part is their payload."""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from django.db import OperationalError

from jobs.choices import Unmatched
from jobs.conf import conf
from jobs.services import drafts, holds, limits
from jobs.services.hints import announce_new_work
from jobs.sql import sql
from jobs.sql.rows.enqueueing import EnqueuedJob
from liveness.models import DEFAULT_NAMESPACE, PROJECT_DIGEST
from liveness.services import tokens

TRIES = 5
JSON_FIELDS = ("action", "payload")
LIST_FIELDS = ("tags", "required_tags", "retry_on")
PLAIN_FIELDS = (
    *("name", "priority", "timeout_seconds", "on_worker_lost", "unmatched", "max_retries", "retry_delay_seconds"),
    *("retry_backoff", "isolation", "worker_slots", "traceparent", "fingerprint"),
)
LONE_FIELDS = {*JSON_FIELDS, *LIST_FIELDS, *PLAIN_FIELDS}
"""Fields of the jobs that the statement enqueue_job can store."""


def needs_no_check(job: dict[str, Any]) -> bool:
    """Return True if a job may be stored without looking at workers and limits."""
    has_rules = "unique" in job or job.get("limits")
    return job.get("unmatched") == Unmatched.WAIT and not has_rules and conf().stored_bytes_limit is None


def enqueue_jobs(rows: list[dict[str, Any]]) -> list[UUID]:
    """Store jobs that need no check, in the caller's transaction, and return their ids in order. One round trip.

    Two for a single job while any hold refuses jobs. Raises OnHold, or OperationalError if holds come and go all the
    time.
    """
    is_lone = len(rows) == 1 and rows[0].keys() <= LONE_FIELDS
    stored = (store_row(rows[0]) if is_lone else []) or store_rows(rows)
    tries = 0
    while len(stored) < len(rows):  # the project has no token yet, or a hold refuses one of these jobs
        if (tries := tries + 1) > TRIES:
            raise OperationalError("Holds changed while these jobs were stored. Enqueue them again.")
        tokens.get_project_token()
        holds.refuse_jobs_on_hold(rows, DEFAULT_NAMESPACE)
        stored = store_rows(rows)  # fewer again if a hold began in between
    announce_new_work()
    if any(row.is_parked for row in stored):
        limits.settle_soon()
    return [row.id for row in stored]


def store_rows(rows: list[dict[str, Any]]) -> list[EnqueuedJob]:
    packed = drafts.dump_sorted_json([{**row, "place": place} for place, row in enumerate(rows)])
    return sql.enqueue_jobs.fetch_rows(jobs=packed, owner=PROJECT_DIGEST, namespace=DEFAULT_NAMESPACE)


def store_row(row: dict[str, Any]) -> list[EnqueuedJob]:
    """Store one job with less CPU than `store_rows`. Store nothing while a hold refuses any jobs."""
    params = {field: row.get(field) for field in PLAIN_FIELDS}
    for field in JSON_FIELDS:
        value = row.get(field)
        params[field] = None if value is None else drafts.dump_sorted_json(value)
    for field in LIST_FIELDS:
        words = row.get(field)
        params[field] = None if words is None else write_array(words)
    return sql.enqueue_job.fetch_rows(owner=PROJECT_DIGEST, namespace=DEFAULT_NAMESPACE, **params)


def write_array(words: Iterable[str]) -> str:
    """Return an array as PostgreSQL reads it. The driver needs ten times as long to write a list."""
    quoted = [word.replace("\\", "\\\\").replace('"', '\\"') for word in words]
    return '{"' + '","'.join(quoted) + '"}' if quoted else "{}"
