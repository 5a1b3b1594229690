"""Interventions in jobs: cancel, move, fail. A client acts on its own jobs, an operator on all.

Each function locks the job and acts on its current state, in one round trip unless the job is a step or a trigger's. If
an intervention and a report come at the same time, the first one that is written wins. `by` is `client:NAME` or
`operator:NAME`. `owner` is the client whose jobs may be changed (None: all). Raises JobUnknown, or the 409 that
explains why the action does not apply; then nothing is changed. The event is recorded in the same transaction.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from uuid import UUID

import structlog

from controlplane.core.json_bodies import write_json
from controlplane.core.statements import Statement, fetch_result_sets
from controlplane.core.transactions import retried_atomic
from jobs.conf import conf
from jobs.errors import AlreadyResubmitted, CancelRequested, JobUnknown, KeyTaken, TryAgain
from jobs.execution_errors import StepHasChild
from jobs.models import Attempt, WorkerJob
from jobs.services import cancellation, executions, guards, limits, propagation
from jobs.services.hints import announce_work
from jobs.services.refusals import refuse_over_quota
from jobs.services.stored_bytes import counting
from jobs.sql import sql
from jobs.sql.rows.interventions import LockedJob
from jobs.states import JobKind, JobState
from liveness.services.action_events import ActionSubject, log_action
from liveness.states import Subject as SubjectType

log = structlog.get_logger()

Applied = tuple[LockedJob, list[list[Any]]]
"""The job as it was locked, and the rows of each statement on it."""


def cancel_job(job: UUID, by: str, owner: UUID | None = None, *, note: str = "") -> None:
    """Cancel a job. A waiting job is CANCELLED now, a live one when its worker confirms, unless it completes first.

    A job that is an execution is CANCELLED when its execution is. A second call changes nothing.
    """
    acted = {"action": "cancel_job", "by": by, "note": note}
    before, done = apply_statements([sql.cancel_job], job, owner, **acted)
    with suppress(CancelRequested):
        guards.ensure_may_cancel_job(before)
    if before.state == JobState.BLOCKED and before.execution is not None:
        if not cancellation.cancel_blocked_step(job, before.execution, **acted):
            return cancel_job(job, by, owner, note=note)  # the step was BLOCKED before and is PENDING now
    elif before.is_execution and before.child is not None:
        cancellation.cancel_execution(before.child, by, note=note, subject=ActionSubject(SubjectType.JOB, job))
    if done[0]:
        log.info("Cancel requested" if before.is_held else "Job cancelled", job=str(job), actor=by, reason=note)
    return None


def resubmit_job(
    job: UUID,
    by: str,
    owner: UUID | None = None,
    key: str | None = None,
    *,
    note: str = "",
    keep_checkpoint: bool = True,
    force: bool = False,
) -> tuple[UUID, bool]:
    """Take a live job from its worker, or submit an ended job again. Return the id of the job, and whether it is new.

    A live job waits again, and this does not count as a loss. A job that ended without success is submitted as a new
    job with `key`: once, unless `force` is set. A step that has ended cannot be resubmitted, because its execution has
    continued; the execution can be run again. For a Celery task in quarantine a worker is asked to send it again.

    The next attempt gets the checkpoint of the last one, unless `keep_checkpoint` is False. A call with the same key
    changes nothing more. Raises KeyTaken if another job has the key, and QuotaExceeded if the calling client has no
    room for a copy.
    """
    why = f"resubmitted by {actor_name(by)}"
    stored_limit = conf().stored_bytes_limit if owner else None
    error = {"code": "RESUBMITTED", "message": why, "key": key} if key is not None else None
    statements: list[Statement[Any]] = [
        counting(sql.drop_checkpoint), sql.move_job, counting(sql.resubmit_ended_job), sql.ask_to_send_task,
    ]  # fmt: skip
    before, (_, moved, copied, sent) = apply_statements(
        statements, job, owner,
        keep_checkpoint=keep_checkpoint, is_forced=force,
        action="resubmit_job", by=by, note=note,
        stored_limit=stored_limit,
        event="MOVED", error=error and write_json(error).decode(), reason=why, key=key,
    )  # fmt: skip
    if copied:
        announce_work()
        if copied[0].is_execution:
            retried_atomic(executions.begin_without_worker)([copied[0].id])
        log.info("Job submitted again", job=str(job), actor=by, new=str(copied[0].id), note=note)
        return copied[0].id, True
    if moved:
        announce_work()
        log.info(
            f"Attempt {moved[0].attempt_state}: {moved[0].reason}",
            job=str(job),
            attempt=str(moved[0].attempt),
            note=note,
        )
        return job, False
    if sent:
        log.info("Celery task to be sent again", job=str(job), actor=by, note=note)
        return job, False
    if key is not None and Attempt.objects.filter(job=job, ended_by=by, error__key=key).exists():
        return job, False
    if key is not None and WorkerJob.objects.filter(resubmission_of=job, key=key).exists():
        return find_resubmitted_copy(key, job), False
    with naming_child(before):
        guards.ensure_may_resubmit_job(before, is_forced=force)
    if stored_limit is not None:
        would_be = sql.read_stored_with_copy.fetch_rows(job=job, owner=owner, stored_limit=stored_limit)
        refuse_over_quota(would_be, stored_limit)
    if key is None:
        # Another call resubmitted the job while this one waited for the lock: `before` is the older state.
        raise AlreadyResubmitted(state=before.state)
    return find_resubmitted_copy(key, job), False


def find_resubmitted_copy(key: str, job: UUID) -> UUID:
    """Return the job that a resubmission of `job` with the same key has made. Raises KeyTaken and TryAgain."""
    owner = WorkerJob.objects.filter(pk=job).values("owner")
    holder = WorkerJob.objects.filter(owner__in=owner, key=key).first()
    if holder is None:
        raise TryAgain
    if holder.resubmission_of_id != job:
        raise KeyTaken(f"The key {key!r} was used before, for another job.", job=str(holder.pk))
    return holder.pk


def fail_job(job: UUID, by: str, owner: UUID | None = None, *, reason: str = "", note: str = "") -> None:
    """Set a waiting or live job to FAILED with the code FAILED_BY_OPERATOR. It is never retried.

    `reason` is the message of the error, `note` that of the event. If only one is given, it is used for both.
    """
    why = f"failed by {actor_name(by)}"
    error = {"code": "FAILED_BY_OPERATOR", "message": reason or note or why, "by": by}
    before, _ = apply_statements(
        [sql.fail_job],
        job,
        owner,
        action="fail_job",
        by=by,
        note=note or reason,
        event="ENDED",
        error=write_json(error).decode(),
        reason=why,
        key=None,
    )
    with naming_child(before):
        guards.ensure_may_fail_job(before)
    log.info("Job failed by hand", job=str(job), actor=by, reason=reason or note)


def apply_statements(
    statements: list[Statement[Any]],
    job: UUID,
    owner: UUID | None,
    *,
    action: str,
    by: str,
    note: str,
    **parameters: Any,
) -> Applied:
    """Lock a job and run statements on it. Return the job as it was, and the rows of each. Raises JobUnknown."""

    def apply_once(*, with_consequences: bool) -> Applied:
        roots = [sql.lock_root_of_job] * with_consequences
        jobs, *done = fetch_result_sets(
            *roots, sql.lock_job, *statements, job=job, owner=owner, with_consequences=with_consequences,
            action=action, actor=by, note=note, max_resubmissions=conf().max_resubmissions, **parameters,
        )[len(roots):]  # fmt: skip
        if not jobs:
            raise JobUnknown
        return jobs[0], done

    before, done = apply_once(with_consequences=False)
    if is_open_job(before) and (before.execution is not None or before.kind == JobKind.TRIGGER):
        before, done = apply_with_consequences(apply_once)
    if any(done):
        log_action(action, by, note, ActionSubject(SubjectType.JOB, job))
    if before.is_limited:
        limits.settle_soon()
    return before, done


@retried_atomic
def apply_with_consequences(
    apply_once: Callable[..., Applied],
) -> Applied:
    """Run the statements again together with their consequences, in one transaction."""
    before, done = apply_once(with_consequences=True)
    if is_open_job(before):
        propagation.propagate_ends([before])
    return before, done


def is_open_job(job: LockedJob) -> bool:
    """Return True if a job waits or is live, but is no execution. The end of any other job has no consequences."""
    return job.state == JobState.PENDING or job.is_held or job.is_waiting


@contextmanager
def naming_child(job: LockedJob) -> Iterator[None]:
    """Add the id of the child execution to the error if an action is refused because its job is a child execution."""
    try:
        yield
    except StepHasChild:
        raise StepHasChild(
            f"This job is the execution {job.child}: act on that execution.", child=str(job.child)
        ) from None


def actor_name(by: str) -> str:
    return by.partition(":")[2]
