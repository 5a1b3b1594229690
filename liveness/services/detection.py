"""Who is not there any more. The steps of the liveness check that need no jobs.

jobs/services/liveness_check.py joins them.
"""

import structlog

from liveness.conf import conf, witness_window
from liveness.models import OWN_DIGEST
from liveness.services.transitions import log_transition
from liveness.sql import sql

log = structlog.get_logger()

LOGGED_LIMIT = 100
"""Servers of a step that the log names; each has its event."""


def advance_clock() -> float:
    """A check begins: observed time advances, if heartbeats can get in. Seconds by which the database's clock was set
    back, if it was, and what waits for a moment of it has not followed."""
    window = witness_window()
    clock = sql.advance_clock.fetch_row(interval=conf().interval, window=window, own_digest=OWN_DIGEST)
    if clock is not None and not clock.witnessed:
        log.warning("No heartbeat got in lately: observed time stands still, and nobody is disconnected", window=window)
    return clock.set_back_by if clock is not None else 0


def judge_brake() -> None:
    """Hold each type of server of which too many would be disconnected at once."""
    rows = sql.judge_brake.fetch_rows(
        brake_minimum=conf().brake_minimum,
        brake_share=conf().brake_share,
        initial_delay=conf().initial_delay,
        staleness_multiplier=conf().staleness_multiplier,
    )
    for row in rows:
        if row.changed and row.is_on:
            log.error(f"The brake holds {row.type}", cluster=row.cluster, silent=row.silent, alive=row.alive)
        elif row.changed:
            log.info(f"The brake on {row.type} has ended", cluster=row.cluster)


def end_expired_maintenance() -> int:
    """End the maintenance whose time is over; how many."""
    ended = sql.end_expired_maintenance.sweep_rows()
    for row in ended:
        log.info("Maintenance has ended: its time was over", cluster=row.cluster)
    return len(ended)


def end_expired_cordons() -> int:
    """Lift the cordons and drains whose time is over; how many."""
    servers = sql.end_expired_cordons.sweep_rows()
    for server in servers[:LOGGED_LIMIT]:
        log.info(f"Server {server.name} gets work again: the time of its cordon was over", server=str(server.id))
    return len(servers)


def note_check_finished(took: float) -> None:
    """Note that a check went through, and in how many seconds, for the probes and the pages."""
    sql.note_check_finished.fetch_rows(took=took)


def fold_tallies() -> None:
    """Keep the counters few."""
    sql.fold_tallies.fetch_rows()


def disconnect_silent_servers() -> int:
    """Disconnect the alive that were silent for longer than their timeout; how many."""
    if not conf().enabled:
        log.warning("LIVENESS is not enabled: silent servers are not disconnected")
        return 0
    # Whoever goes was silent by this reading already, so the brake, judged by one that is no earlier, has counted it;
    # and nobody goes when the brake cannot be judged. No lock is held from one to the other: a process that is
    # suspended in between would stop the checks of all.
    observed = sql.read_observed_time.fetch_only_row(initial_delay=conf().initial_delay)
    if not observed.is_due:
        return 0
    judge_brake()
    disconnected = sql.disconnect_silent_servers.sweep_rows(
        reading=observed.reading,
        initial_delay=conf().initial_delay,
        brake_max_hold=conf().brake_max_hold,
    )
    for server in disconnected[:LOGGED_LIMIT]:
        log.warning(
            f"{server.type.capitalize()} {server.name} heartbeat is stale: last seen {server.silence:.0f} seconds ago",
            server=str(server.id),
        )
        log_transition(server.id, server.name, "alive", "DISCONNECTED", "liveness", server.reason)
    log_others("DISCONNECTED", len(disconnected))
    return len(disconnected)


def deactivate_servers() -> int:
    """What an earlier check found NOT_RUNNING becomes INACTIVE; how many."""
    deactivated = sql.deactivate_servers.sweep_rows()
    for server in deactivated[:LOGGED_LIMIT]:
        log_transition(server.id, server.name, "NOT_RUNNING", "INACTIVE", "liveness", server.reason)
    log_others("INACTIVE", len(deactivated))
    return len(deactivated)


def log_others(state: str, servers: int) -> None:
    """One line for those that are not named."""
    if servers > LOGGED_LIMIT:
        log.warning(f"Servers {state}: more of them", servers=servers - LOGGED_LIMIT)
