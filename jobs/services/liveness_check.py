"""The liveness check: detect → recover → retire. Each step in a transaction of its own, so that one that
fails does not silence the others; everything is found by state, so the next check does what this one missed."""

import time
from collections.abc import Callable
from typing import Any

import structlog
from django.db import DatabaseError

from controlplane.core.transactions import is_database_down
from jobs.services import clock, recovery, taken_attempts
from jobs.sql import sql
from liveness.services import detection
from liveness.services.transitions import log_transition

log = structlog.get_logger()


class CheckFailed(Exception):
    """Some steps of the liveness check failed; the others were done."""


def check_liveness() -> dict[str, Any]:
    """One liveness check; what it did. Raises CheckFailed at its end when a step failed."""
    done: dict[str, Any] = {}
    failed = []
    steps: dict[str, Callable[[], Any]] = {
        "tick": begin_check,
        "out_of_maintenance": detection.end_expired_maintenance,
        "uncordoned": detection.end_expired_cordons,
        "disconnected": detection.disconnect_silent_servers,
        "recovered": recovery.recover_attempts,
        "released": taken_attempts.release_taken_attempts,
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
                raise CheckFailed("The database cannot be reached: " + str(error).strip().split("\n")[0]) from None
            log.exception("A step of the liveness check failed", step=name)
            failed.append(name)
    if failed:
        raise CheckFailed(f"Failed steps: {', '.join(failed)}")
    detection.note_check_finished(took=time.monotonic() - began)
    return {name: count for name, count in done.items() if count is not None}


def begin_check() -> None:
    """A check begins; what waits follows the database's clock, should it have been set back."""
    if behind := detection.advance_clock():
        clock.follow_clock(behind)


def retire_servers() -> int:
    """Lost servers that hold nothing since an earlier check become NOT_RUNNING; how many."""
    retired = sql.retire_servers.sweep_rows()
    for server in retired:
        log_transition(server.id, server.name, "lost", "NOT_RUNNING", "liveness", server.reason)
    sql.note_empty_servers.sweep_rows()
    return len(retired)
