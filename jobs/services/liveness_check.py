"""Liveness check: detect lost servers, recover their attempts, retire the servers.

Each step has its own transaction, so that a failing step does not stop the others. All rows are found by state, so the
next check completes the work of a failed check.
"""

import time
from collections.abc import Callable
from typing import Any

import structlog
from django.db import DatabaseError

from controlplane.core.database.errors import describe
from controlplane.core.transactions import is_database_down
from jobs.services import clock, failover, limits, recovery, taken_attempts
from jobs.sql import sql
from liveness.services import detection
from liveness.services.transitions import log_transition

log = structlog.get_logger()


class CheckFailed(Exception):
    """Steps of the liveness check failed. The other steps were done."""


def check_liveness() -> dict[str, Any]:
    """Run one liveness check and return what it did, by step. Raises CheckFailed at the end if a step failed."""
    done: dict[str, Any] = {}
    failed = []
    steps: dict[str, Callable[[], Any]] = {
        "timeline": failover.follow_timeline,
        "tick": begin_check,
        "out_of_maintenance": detection.end_expired_maintenance,
        "uncordoned": detection.end_expired_cordons,
        "disconnected": detection.disconnect_silent_servers,
        "recovered": recovery.recover_attempts,
        "released": taken_attempts.release_taken_attempts,
        "unparked": limits.settle_left,
        "listed": failover.forget_unheard_servers,
        "inactive": detection.deactivate_servers,
        "not_running": retire_servers,
        "folded": detection.fold_tallies,
    }
    began = time.monotonic()
    for name, step in steps.items():
        try:
            done[name] = step()
        except DatabaseError as error:
            if is_database_down(error):
                raise CheckFailed(describe(error)) from None
            log.exception("A step of the liveness check failed", step=name)
            failed.append(name)
    if failed:
        raise CheckFailed(f"Failed steps: {', '.join(failed)}")
    detection.note_check_finished(took=time.monotonic() - began)
    return {name: count for name, count in done.items() if count is not None}


def begin_check() -> None:
    """Begin a check: advance the clock, and correct waiting jobs if the database's clock was set back."""
    if behind := detection.advance_clock():
        clock.follow_clock(behind)


def retire_servers() -> int:
    """Set lost servers that have held nothing since an earlier check to NOT_RUNNING. Return how many."""
    retired = sql.retire_servers.sweep_rows()
    for server in retired:
        log_transition(server.id, server.name, "lost", "NOT_RUNNING", "liveness", server.reason)
    sql.note_empty_servers.sweep_rows()
    return len(retired)
