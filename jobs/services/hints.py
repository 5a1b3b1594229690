"""Hints that there is work: idle workers wait for them, and claim when one comes.

A hint promises nothing: what a worker gets, its claim alone says. One that is lost costs time, for workers claim now
and then all the same.
"""

from collections.abc import Sequence
from uuid import UUID

from django.db import close_old_connections

from controlplane.core.database import connection
from controlplane.core.notifications import Announcer
from controlplane.core.prepared import fetch_prepared_rows
from jobs.sql import sql
from jobs.sql.rows.hints import ClaimableJobs, ServerOffer, WorkerLoad
from liveness.conf import conf
from liveness.services import tokens
from liveness.services.tokens import ServerToken

CHANNEL = "controlplane_work"
LISTED_LIMIT = 1000
"""Jobs of one set of tags of a namespace that one look finds."""
OTHERS_LIMIT = 20
"""Workers that wait elsewhere, perhaps, and are compared with those that wait here."""

announcer = Announcer(CHANNEL)
announce_work = announcer.announce
"""Say that jobs may have become PENDING, after the commit."""


def read_server_offer(token: ServerToken) -> ServerOffer:
    """What may become work of a server. Raises ServerUnknown and TokenRevoked."""
    row = sql.read_server_offer.fetch_row(server=token.server, version=token.version)
    if row is None:
        tokens.refuse_revoked(token)
        raise AssertionError
    return row


def list_claimable_jobs(most: int) -> list[ClaimableJobs]:
    """The jobs that wait to be claimed, of one set of tags of a namespace no more than `most`; for a thread that is no
    request."""
    try:
        return fetch_prepared_rows(sql.list_claimable_jobs, most=min(most, LISTED_LIMIT))
    finally:
        if not connection.in_atomic_block:
            close_old_connections()


def read_worker_loads(servers: Sequence[UUID]) -> list[WorkerLoad]:
    """The loads of those servers that may have work now and have room, and of some others that may wait elsewhere; for
    a thread that is no request."""
    try:
        multiplier = conf().staleness_multiplier
        return fetch_prepared_rows(
            sql.read_worker_loads, servers=list(servers), others=OTHERS_LIMIT, staleness_multiplier=multiplier
        )
    finally:
        if not connection.in_atomic_block:
            close_old_connections()
