"""Rules of limits: operators set and delete them, and each change acts at once."""

import time
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any
from uuid import UUID

from controlplane.core.database import transaction
from controlplane.core.model_fields import ClockTimestamp
from controlplane.core.transactions import retried_atomic
from jobs.errors import LimitUnknown
from jobs.models import LimitRule
from jobs.models.limits import RESERVED
from jobs.services import limits
from jobs.sql import sql
from liveness.services.action_events import ActionSubject, record_action
from liveness.states import Subject as SubjectType

WAITING_LIMIT, PARKING_TIME = 500_000, 5.0
"""Number of waiting jobs that a new rule parks at once, and the seconds for that. Claims park the others."""
FIELDS = ("running", "starts", "per_seconds", "max_waiting", "submissions_per_minute", "fair", "weight")


@retried_atomic
def set_limit(namespace: str, pattern: str, fields: Mapping[str, Any], by: str) -> tuple[LimitRule, bool]:
    """Set the rule of a pattern in a namespace, and return it and whether it is new. Missing fields become null."""
    if pattern.startswith(RESERVED):
        sql.lock_rules.fetch_rows()
    wanted = {name: fields.get(name) for name in FIELDS}
    rule, is_new = LimitRule.objects.select_for_update(no_key=True).get_or_create(
        namespace=namespace, pattern=pattern, defaults={**wanted, "note": fields["note"], "by": by}
    )
    old = {} if is_new else {name: getattr(rule, name) for name in FIELDS}
    if not is_new:
        LimitRule.objects.filter(pk=rule.pk).update(**wanted, note=fields["note"], by=by, changed_at=ClockTimestamp())
    changes = {name: {"old": old.get(name), "new": wanted[name]} for name in FIELDS if old.get(name) != wanted[name]}
    record_action("set_limit", by, fields["note"], describe_rule(namespace, pattern), changes=changes)
    if pattern.startswith(RESERVED):
        sql.count_running_jobs.after(sql.lock_running_jobs).fetch_rows(pattern=pattern, namespace=namespace)
        park_soon(namespace, pattern)
    apply_rule(pattern)
    return LimitRule.objects.get(pk=rule.pk), is_new


@retried_atomic
def delete_limit(namespace: str, pattern: str, by: str, note: str) -> None:
    """Delete the rule of a pattern in a namespace. Raises LimitUnknown."""
    count, _ = LimitRule.objects.filter(namespace=namespace, pattern=pattern).delete()
    if not count:
        raise LimitUnknown
    record_action("delete_limit", by, note, describe_rule(namespace, pattern))
    apply_rule(pattern)


def describe_rule(namespace: str, pattern: str) -> ActionSubject:
    return ActionSubject(SubjectType.LIMIT, pattern, f"limit {pattern} of {namespace}")


def apply_rule(pattern: str) -> None:
    """Park and unpark jobs of the keys of a pattern after the commit."""
    sql.recheck_pattern.fetch_rows(pattern=pattern)
    limits.settle_soon()


def park_soon(namespace: str, pattern: str) -> None:
    """Park the waiting jobs of a rule by action, tag or namespace after the commit, or now outside a transaction.

    If that fails, or the process ends, claims park these jobs one by one.
    """
    transaction.on_commit(partial(limits.try_to_settle, partial(park_waiting_jobs, namespace, pattern)))


def park_waiting_jobs(namespace: str, pattern: str) -> int:
    """Park the waiting jobs of a rule by action, tag or namespace. Return how many of them may start."""
    jobs = [
        row.id for row in sql.list_jobs_of_rule.fetch_rows(pattern=pattern, namespace=namespace, most=WAITING_LIMIT)
    ]
    unparked, until = 0, time.monotonic() + PARKING_TIME
    for first in range(0, len(jobs), limits.JOBS_AT_ONCE):
        park_jobs(jobs[first : first + limits.JOBS_AT_ONCE])
        unparked += limits.settle_rechecks()
        if time.monotonic() >= until:
            break
    return unparked


@retried_atomic
def park_jobs(jobs: Collection[UUID]) -> None:
    sql.park_jobs_of_rule.fetch_rows(jobs=list(jobs))
