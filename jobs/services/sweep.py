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

from controlplane.core.transactions import is_down
from jobs.conf import conf, waiting
from jobs.services import cancellation, recovery, repair
from jobs.sql import sql
from liveness.services.operations import note_event

log = structlog.get_logger()

NOTHING = {"cancel_timeout": None, "timeouts": False, "claimed_stale_after": None, "running_stale_after": None}


class SweepFailed(Exception):
    """Some steps of the sweep failed; the others were done."""


def sweep() -> dict[str, dict[str, int]]:
    """One recovery sweep: how many ended how, by step; executions are repaired last, so that whatever the others ended
    is passed on by then. Raises SweepFailed at its end when a step failed."""
    done: dict[str, dict[str, int]] = {}
    failed = []
    steps: dict[str, Callable[[], dict[str, int]]] = {
        "recovered": recovery.recover,
        "overdue": end_overdue,
        "expired": expire,
        "unmatched": give_up,
        "timed_out": cancellation.time_out,
        "repaired": repair.repair,
    }
    for name, step in steps.items():
        try:
            done[name] = step()
        except DatabaseError as error:
            if is_down(error):
                raise SweepFailed("The database cannot be reached: " + str(error).strip().split("\n")[0]) from None
            log.exception("A step of the recovery sweep failed", step=name)
            failed.append(name)
    if failed:
        raise SweepFailed(f"Failed steps: {', '.join(failed)}")
    return done


def end_overdue() -> dict[str, int]:
    """End attempts past their timeouts, stale claims and stale runners; how many ended how."""
    return end(
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
    return by_hand("claimed", older_than, actor, note, progress)


def fail_stale_running(
    older_than: float, actor: str, note: str = "", progress: Callable[[int], None] = lambda count: None
) -> int:
    """Fail every running attempt, and its job, without a sign of life for `older_than` seconds; how many."""
    return by_hand("running", older_than, actor, note, progress)


def by_hand(kind: str, older_than: float, actor: str, note: str, progress: Callable[[int], None]) -> int:
    """End the stale attempts of one kind, with an event that says who wanted it, and why."""
    action = {"claimed": "requeue_stale_claimed", "running": "fail_stale_running"}[kind]
    note_event(action, actor, f"{note} (silent for more than {older_than:g} s)".lstrip())
    thresholds = {**NOTHING, f"{kind}_stale_after": older_than}
    return sum(end(thresholds, actor, by_hand=True, progress=progress).values())


def stale(
    claimed: float, running: float, limit: int = 500, after: tuple[float | None, UUID | None] = (None, None)
) -> list[Any]:
    """The live attempts without a sign of life for so many seconds, the most silent first; those after the one that was
    `alive` then and has this id."""
    alive, id = after
    return sql.rows(
        "list_stale_attempts",
        claimed_stale_after=claimed,
        running_stale_after=running,
        limit=limit,
        alive=alive,
        after=id,
    )


def count_stale(older_than: float) -> dict[str, int]:
    """How many live attempts there are without a sign of life for so many seconds, by state."""
    return dict(sql.rows("count_stale_attempts", claimed_stale_after=older_than, running_stale_after=older_than))


def end(
    thresholds: dict[str, Any],
    actor: str = "liveness",
    *,
    by_hand: bool = False,
    progress: Callable[[int], None] = lambda count: None,
) -> dict[str, int]:
    return recovery.in_batches(
        "end_overdue_attempts",
        progress=progress,
        **thresholds,
        actor=actor,
        by_hand=by_hand,
        max_resubmissions=conf().max_resubmissions,
    )


def expire() -> dict[str, int]:
    """Jobs past their good_until are EXPIRED; how many."""
    return recovery.in_batches("expire_jobs")


def give_up() -> dict[str, int]:
    """Jobs that no alive worker may run are FAILED after UNMATCHED_AFTER; how many."""
    if conf().unmatched_after is None:
        return {}
    return recovery.in_batches("fail_unmatched_jobs", looked=None, **waiting())
