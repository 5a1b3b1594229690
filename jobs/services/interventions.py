"""What a client does to a job of its own, and an operator to every one: cancel it, move it, fail it.

Each is one round trip that locks the job and acts on it as it is then, so that of an intervention and a report the
first written wins. Each takes `by` as `client:NAME` or `operator:NAME` and the owner whose jobs alone are reached
(None: all are), and raises JobUnknown or the 409 that says why it does not apply; nothing is changed then.
"""

from typing import Any
from uuid import UUID

import orjson
import structlog

from jobs import states
from jobs.conf import conf
from jobs.errors import CancelRequested, JobEnded, JobUnknown, JobWaiting
from jobs.sql import sql
from jobs.states import JobState

log = structlog.get_logger()


def cancel(job: UUID, by: str, owner: UUID | None = None) -> None:
    """A waiting job is CANCELLED now; a live one when its worker confirms, unless it completes first.

    Asking again changes nothing.
    """
    before, done = act(["cancel"], job, owner)
    if before.state in states.TERMINAL:
        raise ended(before)
    if done[0]:
        log.info("Job cancelled" if before.state == JobState.PENDING else "Cancel requested", job=str(job), actor=by)


def resubmit(job: UUID, by: str, owner: UUID | None = None) -> UUID:
    """A live job is taken from its worker and waits again, counted as no loss; one that ended without success is
    submitted anew. The job to look at from now on."""
    before, (moved, copied) = act(
        ["interrupt_move", "submit_again"], job, owner,
        event="MOVED", error=None, actor=by, reason=f"resubmitted by {name(by)}",
    )  # fmt: skip
    if copied:
        log.info("Job submitted again", job=str(job), actor=by, new=str(copied[0].id))
        return copied[0].id
    if moved:
        log.info(f"Attempt {moved[0].attempt_state}: {moved[0].reason}", job=str(job), attempt=str(moved[0].attempt))
        return job
    if before.is_cancelling and before.state in states.LIVE:
        raise CancelRequested(state=before.state)
    if before.state == JobState.PENDING:
        raise JobWaiting(state=before.state)
    raise ended(before)


def fail(job: UUID, by: str, reason: str = "", owner: UUID | None = None) -> None:
    """A job that waits or is live is FAILED with FAILED_BY_OPERATOR, and never retried."""
    why = f"failed by {name(by)}"
    error = {"code": "FAILED_BY_OPERATOR", "message": reason or why, "by": by}
    before, _ = act(
        ["interrupt_fail"], job, owner, event="ENDED", error=orjson.dumps(error).decode(), actor=by, reason=why
    )
    if before.state in states.TERMINAL:
        raise ended(before)
    log.info("Job failed by hand", job=str(job), actor=by, reason=reason)


def act(statements: list[str], job: UUID, owner: UUID | None, **said: Any) -> tuple[Any, list[list[Any]]]:
    """The job as it was found, and the rows of each statement on it. Raises JobUnknown."""
    found, *done = sql.sets(
        "interrupt_lock", *statements, job=job, owner=owner, max_resubmissions=conf().max_resubmissions, **said
    )
    if not found:
        raise JobUnknown
    return found[0], done


def ended(job: Any) -> JobEnded:
    return JobEnded(f"This job is {job.state}: nothing changes it any more.", state=job.state)


def name(by: str) -> str:
    return by.partition(":")[2]
