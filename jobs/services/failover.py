"""Continue on a new timeline of the database, after a standby was promoted or a backup was restored.

liveness/services/failover.py compares the timeline. No job is claimed until the steps here are done.
"""

import structlog

from jobs.conf import conf
from jobs.services.hints import announce_work
from jobs.sql import sql
from liveness.services import failover

log = structlog.get_logger()

RAISED_BY = 1000
"""Largest number of attempts of one job that may be among the lost transactions."""


def follow_timeline() -> None:
    """Compare the timeline of the database. If it is new, raise the attempt counts of all open jobs."""
    failover.compare_timeline()
    raise_attempt_counts()


def raise_attempt_counts() -> int | None:
    """Raise the attempt counts of all open jobs if the timeline is new. Return how many jobs, or None."""
    row = sql.raise_attempt_counts.fetch_row(by=RAISED_BY)
    if row is None:
        return None
    log.warning(f"The attempt counts of open jobs were raised by {RAISED_BY}", jobs=row.jobs)
    announce_work()
    return row.jobs


def forget_unheard_servers() -> int:
    """Wait no longer for workers that have listed what they run. Return how many."""
    workers = failover.forget_unheard_servers(conf().runner_heartbeat_interval)
    if workers:
        announce_work()
    return workers


def describe_losses() -> dict[str, str]:
    """Return the losses on the present timeline as texts, for `after_restore`. Empty if the timeline is not new."""
    row = sql.read_new_timeline.fetch_row()
    if row is None:
        return {}
    lost = {"Timeline of the database": str(row.timeline)}
    if row.last_change_at is not None:
        lost["Lost"] = f"changes after {row.last_change_at:%Y-%m-%d %H:%M:%S} UTC"
    if row.lost_bytes is not None:
        lost["Lost bytes of the log, at least"] = str(row.lost_bytes)
    return lost
