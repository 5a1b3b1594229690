"""What a client does to a job of its own, and an operator to every one: cancel it, move it, fail it.

Each locks the job and acts on it as it is then, in one round trip unless it is a step or a trigger's, so that of an
intervention and a report the first written wins. Each takes `by` as `client:NAME` or `operator:NAME`, a note, and the
owner whose jobs alone are reached (None: all are), and raises JobUnknown or the 409 that says why it does not apply;
nothing is changed then. Its event is in the same transaction.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from uuid import UUID

import orjson
import structlog

from controlplane.core.statements import Statement, fetch_result_sets
from controlplane.core.transactions import retried_atomic
from jobs.conf import conf
from jobs.errors import AlreadyResubmitted, CancelRequested, JobUnknown, KeyTaken, StepHasChild, TryAgain
from jobs.models import Attempt, WorkerJob
from jobs.services import cancellation, executions, guards, propagation
from jobs.services.hints import announce_work
from jobs.sql import sql
from jobs.sql.rows.interventions import LockedJob
from jobs.states import JobKind, JobState
from liveness.services.action_events import Subject, log_action
from liveness.states import Subject as SubjectType

log = structlog.get_logger()

Applied = tuple[LockedJob, list[list[Any]]]
"""A job as it was found, and the rows of each statement on it."""


def cancel_job(job: UUID, by: str, owner: UUID | None = None, *, note: str = "") -> None:
    """A waiting job is CANCELLED now; a live one when its worker confirms, unless it completes first; what is an
    execution when that is.

    Asking again changes nothing.
    """
    acted = {"action": "cancel_job", "by": by, "note": note}
    before, done = apply_statements([sql.cancel_job], job, owner, **acted)
    with suppress(CancelRequested):
        guards.ensure_may_cancel_job(before)
    if before.state == JobState.BLOCKED and before.execution is not None:
        if not cancellation.cancel_blocked_step(job, before.execution, **acted):
            return cancel_job(job, by, owner, note=note)  # it has just been freed
    elif before.is_execution and before.child is not None:
        cancellation.cancel_execution(before.child, by, note=note, subject=Subject(SubjectType.JOB, job))
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
    """A live job is taken from its worker and waits again, counted as no loss; one that ended without success is
    submitted anew, once unless that is forced, with `key`, so that the same call again finds the same job. A step that
    has ended stays as it is, for its execution has moved on: that can be run again. A Celery task in quarantine is sent
    again, by a worker.

    Its next attempt finds the checkpoint of the last, unless that is not kept.

    The job to look at from now on, and whether it is new. With a key the same call again does nothing more. Raises
    KeyTaken when another job has the key.
    """
    why = f"resubmitted by {actor_name(by)}"
    error = {"code": "RESUBMITTED", "message": why, "key": key} if key is not None else None
    before, (_, moved, copied, sent) = apply_statements(
        [sql.drop_checkpoint, sql.move_job, sql.resubmit_ended_job, sql.ask_to_send_task], job, owner,
        keep_checkpoint=keep_checkpoint, is_forced=force,
        action="resubmit_job", by=by, note=note,
        event="MOVED", error=error and orjson.dumps(error).decode(), reason=why, key=key,
    )  # fmt: skip
    if copied:
        announce_work()
        if copied[0].is_execution:
            retried_atomic(executions.begin_children)([copied[0].id])
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
    if key is None:
        # By a call that had the job's lock meanwhile: `before` is of the moment when this one began to wait for it.
        raise AlreadyResubmitted(state=before.state)
    return find_resubmitted_copy(key, job), False


def find_resubmitted_copy(key: str, job: UUID) -> UUID:
    """The job that a resubmission of this one with the same key has made."""
    owner = WorkerJob.objects.filter(pk=job).values("owner")
    holder = WorkerJob.objects.filter(owner__in=owner, key=key).first()
    if holder is None:
        raise TryAgain
    if holder.resubmission_of_id != job:
        raise KeyTaken(f"The key {key!r} was used before, for another job.", job=str(holder.pk))
    return holder.pk


def fail_job(job: UUID, by: str, owner: UUID | None = None, *, reason: str = "", note: str = "") -> None:
    """A job that waits or is live is FAILED with FAILED_BY_OPERATOR, and never retried. The reason is of its error; it
    is the note, and the note it, where only the other is given."""
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
        error=orjson.dumps(error).decode(),
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
    """The job as it was found, and the rows of each statement on it. Raises JobUnknown."""

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
        log_action(action, by, note, Subject(SubjectType.JOB, job))
    return before, done


@retried_atomic
def apply_with_consequences(
    apply_once: Callable[..., Applied],
) -> Applied:
    """The same once more, and what it moves on."""
    before, done = apply_once(with_consequences=True)
    if is_open_job(before):
        propagation.propagate_ends([before])
    return before, done


def is_open_job(job: LockedJob) -> bool:
    """Whether a job waits or is live; the others move nothing on."""
    return job.state == JobState.PENDING or job.is_held


@contextmanager
def naming_child(job: LockedJob) -> Iterator[None]:
    """A refusal because a job is an execution says which."""
    try:
        yield
    except StepHasChild:
        raise StepHasChild(f"It is the execution {job.child}: act on that.", child=str(job.child)) from None


def actor_name(by: str) -> str:
    return by.partition(":")[2]
