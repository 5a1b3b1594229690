"""Recover a server at once when its machine reports that none of its processes runs any more."""

import time

import structlog
from django.db import DatabaseError

from jobs.models import Attempt
from jobs.services import recovery, taken_attempts
from liveness.models import Server
from liveness.services import ends
from liveness.services.ends import REASON
from liveness.services.tokens import ServerToken
from liveness.states import RestartStrategy

log = structlog.get_logger()
RECOVERY_TRIES = 3
RECOVERY_INTERVAL = 0.05  # seconds


def end_server(token: ServerToken, reason: str = REASON, uptime: float | None = None) -> tuple[Server, int]:
    """Record the end of a server and recover its attempts without the grace period.

    Return its row and how many attempts were taken from it so far; a repeated call returns the same. The next
    liveness check recovers the attempts that cannot be recovered now. See liveness.services.ends for `uptime` and
    the errors.
    """
    server = ends.record_end(token, reason, uptime)
    held = Attempt.objects.live().filter(server=server)
    try:
        for _ in range(RECOVERY_TRIES):
            recovery.recover_server(server.pk)
            if server.worker_task_restart_strategy == RestartStrategy.NEVER or not held.exists():
                break
            time.sleep(RECOVERY_INTERVAL)  # the last report of the server may still lock one of its jobs
        taken_attempts.release_taken_attempts()
    except DatabaseError:
        log.exception("The next liveness check recovers what an ended server held", server=str(server.pk))
    server.refresh_from_db(fields=["state", "ended_at"])
    taken = Attempt.objects.filter(server=server, ended_by="liveness", finished_at__gte=server.ended_at)
    return server, taken.count()
