"""Changes of jobs that wait: their priority, the time from which they may start, tags, timeout, retries, payload
and limits."""

from collections.abc import Mapping, Set
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from django.db.models import F, Func, IntegerField, TextField
from django.db.models.functions import Cast, Coalesce
from django.utils.dateparse import parse_datetime

from controlplane.agent.runners.policy import takes_references
from controlplane.agent.secrets.step_data import mask_payload
from controlplane.agent.secrets.values import find_problem, mask
from controlplane.core.json_bodies import size_of
from controlplane.core.model_fields import ObservedNow
from controlplane.core.transactions import retried_atomic
from jobs import tags
from jobs.conf import conf
from jobs.errors import AlreadyStarted, CeleryTask, ImpossibleChange, JobUnknown
from jobs.execution_errors import StepHasChild
from jobs.models import StoredBytes, WorkerJob, named_limits
from jobs.services import drafts, limits, stored_bytes, waiting_tag_sets
from jobs.services.hints import announce_work
from jobs.services.refusals import refuse_over_quota, refuse_too_many_tag_sets
from jobs.sql import sql
from jobs.states import JobKind, JobState
from liveness.services.action_events import ActionSubject, record_action
from liveness.states import Subject as SubjectType

CHANGEABLE = ("priority", "available_at", "tags", "timeout_seconds", "max_retries", "payload", "limits")
LARGEST_SHOWN = 1000
"""Bytes of JSON of a payload that an event shows. Of a larger one it shows the size."""


class OwnedBytes(NamedTuple):
    """Bytes that an owner stores."""

    stored: int


@retried_atomic
def change_job(
    job: UUID,
    by: str,
    owner: UUID | None = None,
    *,
    changes: Mapping[str, Any],
    note: str = "",
    is_limited: bool = True,
) -> None:
    """Change fields of a job that is PENDING or BLOCKED, and record an event with the old and the new values.

    `changes` are valid values of fields of `CHANGEABLE`, and of `good_until` for a submission that extends the job.
    `available_at` None means now. `owner` is the client whose jobs may be changed (None: all); with `is_limited` its
    limits apply. Values that are the same change nothing. A new payload deletes the checkpoint of earlier attempts.

    Raises JobUnknown, AlreadyStarted, CeleryTask, StepHasChild and ImpossibleChange. For a client also TooManyTagSets
    and QuotaExceeded.
    """
    row = lock_waiting_job(job, owner)
    client = owner if is_limited else None
    now = sql.read_clock.fetch_only_row().now
    wanted = {name: read_value(name, value, now) for name, value in changes.items()}
    old = {name: now_is for name, value in wanted.items() if differs(now_is := read_field(row, name), value)}
    if "available_at" in old and max(row.available_at, wanted["available_at"]) <= now:
        del old["available_at"]  # it can be claimed now, and could be before
    if not old:
        return
    if "limits" in old:
        refuse_held_keys(row, wanted["limits"])
    keys = {*(row.limits or {}), *(wanted.get("limits") or {})}
    for name in old:
        setattr(row, name, wanted[name])
    fields = set(old)
    if "available_at" in old and row.good_until is not None and row.available_at >= row.good_until:
        raise ImpossibleChange(
            f"available_at must be before good_until of the job, which is {row.good_until.isoformat()}."
        )
    shown = {name: {"old": show_value(old[name]), "new": show_value(wanted[name])} for name in sorted(old)}
    if "payload" in old:
        refuse_wrong_secrets(row.action, row.payload)
        shown["payload"]["old"] = show_value(mask_payload(old["payload"], row.payload_from))
        row.payload_from = None  # these places are not in the new payload
        fields.add("payload_from")
        if row.checkpoint is not None:  # it describes the work on the old payload
            shown["checkpoint"] = {"old": show_value(row.checkpoint), "new": None}
            row.checkpoint = row.checkpoint_at = None
            fields |= {"checkpoint", "checkpoint_at"}
    if "tags" in old:
        row.required_tags = tags.required_tags(row.action, row.tags)
        row.pending_observed = ObservedNow()
        fields |= {"required_tags", "pending_observed"}
        limit_tag_sets(row, client)
    fields |= recheck_keys(row, keys, fields)
    before = stored_size(job) if "payload" in old else 0
    row.save(update_fields=sorted(fields))
    if fields & {"limits", "tags"}:
        sql.park_jobs_of_rule.fetch_rows(jobs=[job])
    if "payload" in old:
        count_bytes(row, client, stored_size(job) - before)
    record_action("change_job", by, note, ActionSubject(SubjectType.JOB, job), changes=shown)
    if fields & {"priority", "available_at", "tags"}:
        announce_work()
    limits.settle_soon()


def read_field(row: WorkerJob, name: str) -> Any:
    return named_limits(row.limits) if name == "limits" else getattr(row, name)


def recheck_keys(row: WorkerJob, keys: Set[str], changed: Set[str]) -> set[str]:
    """Unpark a job whose place among the jobs of its old and new keys changes, and return the fields to save.

    The settlement after the commit parks it again if it has no slot.
    """
    if not keys or not changed & {"limits", "priority", "available_at", "tags"}:
        return set()
    sql.note_rechecks.fetch_rows(keys=sorted(keys))
    row.turn = 0  # a fair key takes a turn again
    parked_by = row.parked_by or {}
    if "limit" not in parked_by and not ("hold" in parked_by and "limits" in changed):
        return {"turn"}
    row.parked_by = None
    return {"parked_by", "turn"}


def lock_waiting_job(job: UUID, owner: UUID | None) -> WorkerJob:
    """Lock a job that may be changed and return it. A claim that runs at the same time is over then, or waits."""
    visible = WorkerJob.objects.filter(pk=job) if owner is None else WorkerJob.objects.filter(pk=job, owner=owner)
    row = visible.select_for_update(no_key=True).first()
    if row is None:
        raise JobUnknown
    ensure_may_change(row)
    return row


def ensure_may_change(row: WorkerJob) -> None:
    """Raise the Problem that explains why this job cannot be changed."""
    if row.state not in (JobState.PENDING, JobState.BLOCKED):
        raise AlreadyStarted(f"The job is {row.state}. Only a job that waits can be changed.", state=row.state)
    if row.kind == JobKind.CELERY:
        raise CeleryTask("The job is a Celery task that its broker holds, so it cannot be changed.", state=row.state)
    if drafts.is_execution({"action": row.action}) or row.loop is not None:
        raise StepHasChild("The step is an execution of its own, and has no fields that can be changed.")
    if drafts.is_waiting({"action": row.action}):
        raise AlreadyStarted("A step that waits has no fields that can be changed.", state=row.state)


def refuse_held_keys(row: WorkerJob, wanted: Mapping[str, int] | None) -> None:
    """Raise ImpossibleChange if an execution above the step holds one of these keys, so that it could never start."""
    if row.execution_id is None or not wanted:
        return
    held = {named.key for named in sql.list_held_keys.fetch_rows(execution=row.execution_id)}
    if taken := sorted(held & wanted.keys()):
        raise ImpossibleChange(
            f"limits: The execution holds the slots of {taken[0]!r} until its end, so no step of it may name this key."
        )


def read_value(name: str, value: Any, now: datetime) -> Any:
    """Return the value that is stored. A bulk action stores times as text."""
    if name != "available_at":
        return value
    if isinstance(value, str):
        value = parse_datetime(value)
    return now if value is None else max(value, now)


def differs(old: Any, new: Any) -> bool:
    """Return True if two values are written differently. For Python, 1 and true are equal."""
    if isinstance(old, datetime) or isinstance(new, datetime):
        return bool(old != new)
    return drafts.dump_sorted_json(old) != drafts.dump_sorted_json(new)


def refuse_wrong_secrets(action: dict[str, Any], payload: Any) -> None:
    """Raise ImpossibleChange if the secrets of a payload are invalid. Celery tasks have none, and cannot be changed."""
    problem = find_problem(payload) if takes_references(action) else None
    if problem:
        raise ImpossibleChange(f"payload: {problem}")


def limit_tag_sets(row: WorkerJob, owner: UUID | None) -> None:
    """Raise TooManyTagSets if a client's waiting jobs would have too many sets of tags."""
    if owner is None:
        return
    limit = waiting_tag_sets.limit_to_count(owner, [tuple(row.required_tags)])
    counted = sql.count_tag_sets.fetch_rows(owner=owner, required_tags=row.required_tags, tag_sets_limit=limit)
    refuse_too_many_tag_sets(counted, limit)


def stored_size(job: UUID) -> int:
    """Return the bytes of JSON in which the payload and the checkpoint are stored."""
    sizes = [
        Coalesce(Func(Cast(F(name), TextField()), function="octet_length", output_field=IntegerField()), 0)
        for name in ("payload", "checkpoint")
    ]
    return sum(WorkerJob.objects.filter(pk=job).values_list(*sizes).get())


def count_bytes(row: WorkerJob, owner: UUID | None, more: int) -> None:
    """Count the bytes of a changed payload. Raises QuotaExceeded if a client has no room for them."""
    limit = conf().stored_bytes_limit
    if row.owner_id is None or not stored_bytes.counts_bytes():
        return
    StoredBytes.objects.create(owner_id=row.owner_id, bytes=more)
    if owner is not None and more > 0:
        stored = sum(StoredBytes.objects.filter(owner=owner).values_list("bytes", flat=True))
        refuse_over_quota([OwnedBytes(stored)], limit)


def show_value(value: Any) -> Any:
    """Return a value for an event: without secrets, and the size of a large payload instead of it."""
    if isinstance(value, datetime):
        return value.isoformat()
    size = size_of(value)
    return f"{size} bytes of JSON" if size > LARGEST_SHOWN else mask(value)
