"""The recovery sweep: what no lost server explains. Stale claims, stale runners, timeouts, unmatched work, expiry,
torn executions.

Everything is found by state and judged by observed time, so an outage of the control plane fails no job, and
a sweep that was interrupted is finished by the next.
"""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import structlog
from django.db import DatabaseError

from controlplane.core.transactions import is_database_down
from jobs.conf import conf, unmatched_parameters
from jobs.services import cancellation, execution_repair, recovery
from jobs.sql import sql
from jobs.sql.rows.sweep import StaleAttempt
from liveness.services.action_events import Subject, record_action
from liveness.states import Subject as SubjectType

log = structlog.get_logger()

NO_THRESHOLDS = {"cancel_timeout": None, "timeouts": False, "claimed_stale_after": None, "running_stale_after": None}


class SweepFailed(Exception):
    """Some steps of the sweep failed; the others were done."""


def run_sweep() -> dict[str, dict[str, int]]:
    """One recovery sweep: how many ended how, by step; executions are repaired last, so that whatever the others ended
    is passed on by then. Raises SweepFailed at its end when a step failed."""
    done: dict[str, dict[str, int]] = {}
    failed = []
    steps: dict[str, Callable[[], dict[str, int]]] = {
        "recovered": recovery.recover_attempts,
        "overdue": end_overdue_attempts,
        "expired": expire_jobs,
        "unmatched": fail_unmatched_jobs,
        "timed_out": cancellation.cancel_overdue_executions,
        "repaired": execution_repair.repair_executions,
    }
    for name, step in steps.items():
        try:
            done[name] = step()
        except DatabaseError as error:
            if is_database_down(error):
                raise SweepFailed("The database cannot be reached: " + str(error).strip().split("\n")[0]) from None
            log.exception("A step of the recovery sweep failed", step=name)
            failed.append(name)
    if failed:
        raise SweepFailed(f"Failed steps: {', '.join(failed)}")
    return done


def end_overdue_attempts() -> dict[str, int]:
    """End attempts past their timeouts, stale claims and stale runners; how many ended how."""
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
    """Requeue every claim without a sign of life for `older_than` seconds, whatever the settings say; how many."""
    return end_stale_by_hand("claimed", older_than, actor, note, progress)


def fail_stale_running(
    older_than: float, actor: str, note: str = "", progress: Callable[[int], None] = lambda count: None
) -> int:
    """Fail every running attempt, and its job, without a sign of life for `older_than` seconds; how many."""
    return end_stale_by_hand("running", older_than, actor, note, progress)


def end_stale_by_hand(kind: str, older_than: float, actor: str, note: str, progress: Callable[[int], None]) -> int:
    """End the stale attempts of one kind, with an event that says who wanted it, and why."""
    action = {"claimed": "requeue_stale_claimed", "running": "fail_stale_running"}[kind]
    stale = Subject(SubjectType.ATTEMPTS, name=f"{kind} attempts silent for more than {older_than:g} s")
    record_action(action, actor, note, stale)
    thresholds = {**NO_THRESHOLDS, f"{kind}_stale_after": older_than}
    return sum(end_by_thresholds(thresholds, actor, by_hand=True, progress=progress).values())


def list_stale_attempts(
    claimed: float, running: float, limit: int = 500, after: tuple[float | None, UUID | None] = (None, None)
) -> list[StaleAttempt]:
    """The live attempts without a sign of life for so many seconds, the most silent first; those after the one that was
    `alive` then and has this id."""
    alive, id = after
    return sql.list_stale_attempts.fetch_rows(
        claimed_stale_after=claimed,
        running_stale_after=running,
        limit=limit,
        alive=alive,
        after=id,
    )


def count_stale_attempts(older_than: float) -> dict[str, int]:
    """How many live attempts there are without a sign of life for so many seconds, by state."""
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
    """Jobs past their good_until are EXPIRED; how many."""
    return recovery.sweep_in_batches(sql.expire_jobs)


def fail_unmatched_jobs() -> dict[str, int]:
    """Jobs that no alive worker may run are FAILED after UNMATCHED_AFTER; how many."""
    if conf().unmatched_after is None:
        return {}
    return recovery.sweep_in_batches(sql.fail_unmatched_jobs, scan_limit=None, **unmatched_parameters())
