"""Hints that there is work: idle workers wait for a hint and then claim.

A hint is no promise: only the claim decides which jobs a worker gets. A lost hint only costs time, because workers also
claim at intervals.
"""

import json
from collections.abc import Iterable, Sequence
from uuid import UUID

from django.db import close_old_connections

from controlplane.core.database import connection, transaction
from controlplane.core.notifications import Announcer
from jobs.services.claim_floors import floors
from jobs.sql import sql
from jobs.sql.rows.hints import ClaimableJobs, ServerOffer, WorkerLoad
from liveness.conf import conf
from liveness.services import tokens
from liveness.services.tokens import ServerToken

CHANNEL = "controlplane_work"
LISTED_LIMIT = 1000
"""Largest number of jobs that one search finds for each namespace and set of tags."""
OTHERS_LIMIT = 20
"""Largest number of workers at other processes that are compared with the workers that wait here."""

EARLIER_WORK = "earlier"
"""Content of a notification if jobs may have come back to earlier positions of the queue."""

CHANGED_OFFER = "offer "
"""Beginning of a notification about a server whose tags have changed."""

announcer = Announcer(CHANNEL)
announce_new_work = announcer.announce
"""Announce, after the commit, that there may be new jobs at the end of a queue."""


def announce_work() -> None:
    """Announce, after the commit, that jobs may have become PENDING, also at earlier positions of the queue."""
    announcer.announce(EARLIER_WORK)
    transaction.on_commit(floors.reset)


def announce_changed_offer(server: UUID) -> None:
    """Announce, at the commit, that the tags of a server have changed, so that no process remembers the old ones."""
    with connection.cursor() as cursor:
        cursor.execute("select pg_notify(%s, %s)", [CHANNEL, f"{CHANGED_OFFER}{server}"])


def note_announcement(content: str) -> str | None:
    """Forget where the queues begin if another process has announced jobs at earlier positions.

    Return the server whose tags have changed, if the notification is about that.
    """
    if content == EARLIER_WORK:
        floors.reset()
    return content.removeprefix(CHANGED_OFFER) if content.startswith(CHANGED_OFFER) else None


def read_server_offer(token: ServerToken) -> ServerOffer:
    """Return the namespace and tags of a server, and if a job waits for it. Raise ServerUnknown or TokenRevoked."""
    row = sql.read_server_offer.fetch_row(server=token.server, version=token.version)
    if row is None:
        tokens.refuse_revoked(token)
        raise AssertionError
    return row


def list_claimable_jobs(most: int, offers: Iterable[tuple[str, Iterable[str]]]) -> list[ClaimableJobs]:
    """Return the jobs that workers with these offers can claim, at most `most` of each namespace and set of tags.

    An offer is a namespace and tags. Call this in a thread that serves no request, because it closes old connections.
    """
    try:
        listed = [json.dumps({"namespace": namespace, "tags": sorted(tags)}) for namespace, tags in offers]
        return sql.list_claimable_jobs.fetch_rows(most=min(most, LISTED_LIMIT), offers=listed)
    finally:
        if not connection.in_atomic_block:
            close_old_connections()


def read_worker_loads(servers: Sequence[UUID]) -> list[WorkerLoad]:
    """Return the loads of the `servers` that may get work and have room, and of some others that may wait elsewhere.

    Call this in a thread that serves no request, because it closes old connections.
    """
    try:
        multiplier = conf().staleness_multiplier
        return sql.read_worker_loads.fetch_rows(
            servers=list(servers), others=OTHERS_LIMIT, staleness_multiplier=multiplier
        )
    finally:
        if not connection.in_atomic_block:
            close_old_connections()
