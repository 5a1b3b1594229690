"""Who is not there any more. The steps of the liveness check that need no jobs; jobs/services/check.py joins them."""

import structlog

from liveness.conf import conf
from liveness.services.transitions import report
from liveness.sql import sql

log = structlog.get_logger()


def begin_tick() -> None:
    """Note that a check begins."""
    sql.rows("tick", interval=conf().interval)


def begin_sweep() -> None:
    """Note that everything that is lost by now is about to be recovered."""
    sql.rows("swept")


def finish() -> None:
    """Note that a check went through, for the probes and the pages."""
    sql.rows("finished")


def detect() -> int:
    """Disconnect the alive that were silent for longer than their timeout; how many."""
    if not conf().enabled:
        log.warning("LIVENESS is not enabled: silent servers are not disconnected")
        return 0
    found = sql.sweep("detect", initial_delay=conf().initial_delay)
    for server in found:
        log.warning(
            f"Worker {server.name} heartbeat is stale: last seen {server.silence:.0f} seconds ago",
            server=str(server.id),
        )
        report(server.id, server.name, "alive", "DISCONNECTED", "liveness", server.reason)
    return len(found)


def deactivate() -> int:
    """What an earlier check found NOT_RUNNING becomes INACTIVE; how many."""
    found = sql.sweep("deactivate")
    for server in found:
        report(server.id, server.name, "NOT_RUNNING", "INACTIVE", "liveness", server.reason)
    return len(found)
