"""Stores jobs of the project's own code whose only new part is their payload."""

from typing import Any
from uuid import UUID

from jobs.choices import Unmatched
from jobs.conf import conf
from jobs.services import drafts, holds, limits
from jobs.services.hints import announce_new_work
from jobs.sql import sql
from jobs.sql.rows.enqueueing import EnqueuedJob
from liveness.models import DEFAULT_NAMESPACE, PROJECT_DIGEST
from liveness.services import tokens


def needs_no_check(job: dict[str, Any]) -> bool:
    """Return True if a job may be stored without looking at workers and limits."""
    has_rules = "unique" in job or job.get("limits")
    return job.get("unmatched") == Unmatched.WAIT and not has_rules and conf().stored_bytes_limit is None


def enqueue_jobs(rows: list[dict[str, Any]]) -> list[UUID]:
    """Store jobs that need no check, in the caller's transaction, and return their ids in order. One round trip.

    Raises OnHold.
    """
    packed = drafts.dump_sorted_json([{**row, "place": place} for place, row in enumerate(rows)])
    stored = store_rows(packed)
    if len(stored) < len(rows):  # the project had no token yet, or a hold refuses the jobs
        tokens.get_project_token()
        holds.refuse_jobs_on_hold(rows, DEFAULT_NAMESPACE)
        stored = store_rows(packed)
    announce_new_work()
    if any(row.is_parked for row in stored):
        limits.settle_soon()
    return [row.id for row in stored]


def store_rows(packed: str) -> list[EnqueuedJob]:
    return sql.enqueue_jobs.fetch_rows(jobs=packed, owner=PROJECT_DIGEST, namespace=DEFAULT_NAMESPACE)
