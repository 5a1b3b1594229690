"""Steps of the liveness check that need no jobs: find servers that have stopped sending heartbeats.

jobs/services/liveness_check.py runs them.
"""

from uuid import UUID

import structlog

from liveness.conf import conf, witness_window
from liveness.models import OWN_DIGEST
from liveness.services.transitions import log_transition
from liveness.sql import sql

log = structlog.get_logger()

STALE_NAMED = 10
"""Largest number of stale workers in the log when a submission is refused because of them."""
LOGGED_LIMIT = 100
"""Largest number of servers in the log for one step. Each server has its event anyway."""


def advance_clock() -> float:
    """Advance observed time if heartbeats can arrive, and log the servers that became stale.

    Return how many seconds the database's clock was set back, or 0. The caller corrects stored times by this number.
    """
    window = witness_window()
    clock = sql.advance_clock.fetch_row(interval=conf().interval, window=window, own_digest=OWN_DIGEST)
    if clock is not None and not clock.witnessed:
        log.warning("No heartbeat arrived: observed time stands still and no server is disconnected", window=window)
    if clock is None:
        return 0
    if clock.reading > clock.earlier:
        log_newly_stale(clock.earlier, clock.reading)
    return clock.set_back_by


def log_newly_stale(earlier: float, reading: float) -> None:
    """Log once each server whose heartbeat became stale between two readings of observed time."""
    multiplier = conf().staleness_multiplier
    stale = sql.list_newly_stale_servers.fetch_rows(
        earlier=earlier, reading=reading, staleness_multiplier=multiplier, limit=LOGGED_LIMIT + 1
    )
    for server in stale[:LOGGED_LIMIT]:
        log_stale_heartbeat(server.id, server.type, server.name, server.silence)
    if len(stale) > LOGGED_LIMIT:
        log.warning("More heartbeats are stale than are logged", named=LOGGED_LIMIT)


def log_stale_heartbeat(server: UUID, type: str, name: str, silence: float) -> None:
    """Log a stale heartbeat. The text is fixed, because people search for it."""
    line = f"{type.capitalize()} {name} heartbeat is stale: last seen {silence:.0f} seconds ago"
    log.warning(line, server=str(server))


def log_stale_workers(server: UUID | None = None) -> None:
    """Log the workers with stale heartbeats, because of which a submission or a claim was refused.

    `server` limits the log to one worker.
    """
    for row in sql.list_stale_workers.fetch_rows(
        server=server, staleness_multiplier=conf().staleness_multiplier, limit=STALE_NAMED
    ):
        log_stale_heartbeat(row.id, row.type, row.name, row.silence)


def judge_brake() -> None:
    """Engage, keep or end the brake for each server type, namespace and cluster."""
    rows = sql.judge_brake.fetch_rows(
        brake_minimum=conf().brake_minimum,
        brake_share=conf().brake_share,
        initial_delay=conf().initial_delay,
        staleness_multiplier=conf().staleness_multiplier,
    )
    for row in rows:
        if row.changed and row.is_on:
            where = {"namespace": row.namespace, "cluster": row.cluster}
            log.error(f"The brake holds {row.type}", **where, silent=row.silent, alive=row.alive)
        elif row.changed:
            log.info(f"The brake on {row.type} has ended", namespace=row.namespace, cluster=row.cluster)


def end_expired_maintenance() -> int:
    """End expired maintenance. Return how many."""
    ended = sql.end_expired_maintenance.sweep_rows()
    for row in ended:
        log.info("Maintenance has expired", cluster=row.cluster)
    return len(ended)


def end_expired_cordons() -> int:
    """Lift expired cordons and drains. Return how many."""
    servers = sql.end_expired_cordons.sweep_rows()
    for server in servers[:LOGGED_LIMIT]:
        log.info(f"Server {server.name} gets work again: its cordon has expired", server=str(server.id))
    return len(servers)


def note_check_finished(took: float) -> None:
    """Record that a check succeeded and how many seconds it took. Probes and pages show it."""
    sql.note_check_finished.fetch_rows(took=took)


def fold_tallies() -> None:
    """Merge the rows of each counter into one."""
    sql.fold_tallies.fetch_rows()


def disconnect_silent_servers() -> int:
    """Disconnect alive servers that were silent for longer than their timeout. Return how many."""
    if not conf().enabled:
        log.warning("LIVENESS is not enabled: silent servers are not disconnected")
        return 0
    # The brake must count each server before it is disconnected. So `judge_brake` runs after this reading of the clock,
    # and no server is disconnected if it fails. No lock is held between the two statements, because a process that is
    # suspended there would stop the checks of all executors.
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
        log_stale_heartbeat(server.id, server.type, server.name, server.silence)
        log_transition(server.id, server.name, "alive", "DISCONNECTED", "liveness", server.reason)
    log_others("DISCONNECTED", len(disconnected))
    return len(disconnected)


def deactivate_servers() -> int:
    """Make servers INACTIVE that were NOT_RUNNING at an earlier check. Return how many."""
    deactivated = sql.deactivate_servers.sweep_rows()
    for server in deactivated[:LOGGED_LIMIT]:
        log_transition(server.id, server.name, "NOT_RUNNING", "INACTIVE", "liveness", server.reason)
    log_others("INACTIVE", len(deactivated))
    return len(deactivated)


def log_others(state: str, servers: int) -> None:
    """Log the number of servers beyond LOGGED_LIMIT in one line."""
    if servers > LOGGED_LIMIT:
        log.warning(f"More servers are {state} than are logged", servers=servers - LOGGED_LIMIT)
