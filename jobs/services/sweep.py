"""The recovery sweep: stale claims and code, timeouts, unmatched jobs, expired jobs, executions that do not continue.

It handles what a lost server does not explain. All rows are found by state and judged by observed time. So an outage
of the control plane fails no job, and the next sweep finishes an interrupted one.
"""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import structlog
from django.db import DatabaseError

from controlplane.core.database.errors import describe
from controlplane.core.transactions import is_database_down
from jobs.conf import conf, unmatched_parameters
from jobs.services import cancellation, deadlines, execution_repair, holds, limits, recovery
from jobs.sql import sql
from jobs.sql.rows.sweep import StaleAttempt
from liveness.services.action_events import ActionSubject, record_action
from liveness.states import Subject as SubjectType

log = structlog.get_logger()

NO_THRESHOLDS = {"cancel_timeout": None, "timeouts": False, "claimed_stale_after": None, "running_stale_after": None}


class SweepFailed(Exception):
    """Steps of the sweep failed. The other steps were done."""


def run_sweep() -> dict[str, dict[str, int]]:
    """Run one recovery sweep: stale claims and runners, timeouts, unmatched jobs, torn executions.

    Return, for each of these, how many jobs or executions it ended in which state. Torn executions come after
    the steps that end jobs of executions. Limits come last, because the other steps free slots. Raises SweepFailed
    at the end if a step failed.
    """
    done: dict[str, dict[str, int]] = {}
    failed = []
    steps: dict[str, Callable[[], dict[str, int]]] = {
        "holds": holds.sweep_holds,
        "recovered": recovery.recover_attempts,
        "overdue": end_overdue_attempts,
        "expired": expire_jobs,
        "unmatched": fail_unmatched_jobs,
        "timed_out": cancellation.cancel_overdue_executions,
        "late": deadlines.cancel_past_deadlines,
        "repaired": execution_repair.repair_executions,
        "limits": limits.repair_limits,
    }
    for name, step in steps.items():
        try:
            done[name] = step()
        except DatabaseError as error:
            if is_database_down(error):
                raise SweepFailed(describe(error)) from None
            log.exception("A step of the recovery sweep failed", step=name)
            failed.append(name)
    if failed:
        raise SweepFailed(f"Failed steps: {', '.join(failed)}")
    return done


def end_overdue_attempts() -> dict[str, int]:
    """End attempts past their timeouts, stale claims and stale running attempts. Return their number by state."""
    return end_by_thresholds(
        {
            "cancel_timeout": conf().cancel_timeout,
            "timeouts": True,
            "claimed_stale_after": conf().claimed_stale_after if conf().auto_requeue_stale_claimed else None,
            "running_stale_after": conf().running_stale_after if conf().auto_fail_stale_running else None,
        }
    )


def requeue_stale_claimed(
    older_than: float, actor: str, note: str = "", progress: Callable[[int], None] = lambda count: None
) -> int:
    """Requeue every claim without a sign of life for `older_than` seconds, whatever the settings. Return how many."""
    return end_stale_by_hand("claimed", older_than, actor, note, progress)


def fail_stale_running(
    older_than: float, actor: str, note: str = "", progress: Callable[[int], None] = lambda count: None
) -> int:
    """Fail every running attempt without a sign of life for `older_than` seconds, and its job. Return how many."""
    return end_stale_by_hand("running", older_than, actor, note, progress)


def end_stale_by_hand(kind: str, older_than: float, actor: str, note: str, progress: Callable[[int], None]) -> int:
    """End the stale attempts of one kind, and record who requested it and why."""
    action = {"claimed": "requeue_stale_claimed", "running": "fail_stale_running"}[kind]
    stale = ActionSubject(SubjectType.ATTEMPTS, name=f"{kind} attempts silent for more than {older_than:g} s")
    record_action(action, actor, note, stale)
    thresholds = {**NO_THRESHOLDS, f"{kind}_stale_after": older_than}
    return sum(end_by_thresholds(thresholds, actor, by_hand=True, progress=progress).values())


def list_stale_attempts(
    claimed: float, running: float, limit: int = 500, after: tuple[float | None, UUID | None] = (None, None)
) -> list[StaleAttempt]:
    """Return live attempts without a sign of life for so many seconds, the most silent first.

    `after` is the last row of the previous page: its `alive` and its id.
    """
    alive, id = after
    return sql.list_stale_attempts.fetch_rows(
        claimed_stale_after=claimed,
        running_stale_after=running,
        limit=limit,
        alive=alive,
        after=id,
    )


def count_stale_attempts(older_than: float) -> dict[str, int]:
    """Return the number of live attempts without a sign of life for `older_than` seconds, by state."""
    return dict(sql.count_stale_attempts.fetch_rows(claimed_stale_after=older_than, running_stale_after=older_than))


def end_by_thresholds(
    thresholds: dict[str, Any],
    actor: str = "liveness",
    *,
    by_hand: bool = False,
    progress: Callable[[int], None] = lambda count: None,
) -> dict[str, int]:
    return recovery.sweep_in_batches(
        sql.end_overdue_attempts,
        progress=progress,
        **thresholds,
        actor=actor,
        by_hand=by_hand,
        max_resubmissions=conf().max_resubmissions,
    )


def expire_jobs() -> dict[str, int]:
    """Set jobs past their `good_until` to EXPIRED. Return how many."""
    return recovery.sweep_in_batches(sql.expire_jobs, kept=conf().job_retention)


def fail_unmatched_jobs() -> dict[str, int]:
    """Set jobs that no alive worker may run to FAILED after UNMATCHED_AFTER. Return how many."""
    if conf().unmatched_after is None:
        return {}
    return recovery.sweep_in_batches(sql.fail_unmatched_jobs, scan_limit=None, **unmatched_parameters())
