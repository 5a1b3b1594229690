"""A worker asks for work."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Never
from uuid import UUID

import orjson
from django.db import DatabaseError

from controlplane.core.database import transaction
from controlplane.core.paging import ANSWER_LIMIT
from controlplane.core.prepared import fetch_prepared_rows
from controlplane.core.transactions import is_transient_error, record_left_out, retried_atomic, run_in_halves
from jobs.errors import HeartbeatStale, Maintenance, NotAWorker, NotRunningYet, ServerCordoned
from jobs.models import WorkerJob
from jobs.sql import sql
from jobs.sql.rows.claiming import GivenAttempt
from jobs.states import JobKind, JobState
from liveness import states
from liveness.conf import conf
from liveness.errors import ServerDisconnected, ServerNotRunning, ServerUnknown, TokenRevoked
from liveness.models import ClusterMaintenance, Instance, Server
from liveness.services.tokens import ServerToken
from liveness.states import ServerState

CANDIDATES_LIMIT = 1000
"""Jobs that are tried one by one for a worker when one of those that it is to have cannot be written."""


@dataclass(frozen=True)
class ClaimedAttempt:
    """An attempt that was given to a worker."""

    id: UUID
    number: int
    job: UUID
    kind: str
    action: dict[str, Any]
    payload: Any
    timeout_seconds: float | None
    execution: UUID | None
    step: str | None
    checkpoint: Any
    traceparent: str | None
    former_traceparent: str | None


def claim_jobs(token: ServerToken, limit: int, request_id: UUID | None = None) -> list[ClaimedAttempt]:
    """At most `limit` attempts for the worker, as many as it has room for and one answer holds. One round trip.

    The same `request_id` again returns the same attempts. Raises what says why a server gets no work.
    """
    try:
        rows = fetch_claimed_rows(token, limit, request_id)
    except DatabaseError as error:
        if is_transient_error(error):
            raise
        rows = fetch_claimed_rows(token, limit, request_id, find_writable_jobs(token, limit))
    return [
        ClaimedAttempt(
            row.id, row.number, row.job, row.kind, orjson.loads(row.action),
            None if row.payload is None else orjson.loads(row.payload), row.timeout_seconds,
            row.execution, row.step,
            None if row.checkpoint is None else orjson.loads(row.checkpoint), row.traceparent,
            row.former_traceparent,
        )
        for row in rows
        if row.id is not None
    ]  # fmt: skip


def fetch_claimed_rows(
    token: ServerToken, limit: int, request_id: UUID | None, only: Sequence[UUID] | None = None
) -> list[GivenAttempt]:
    """The rows of what is given to a worker; of some jobs `only`, or of all."""
    rows = fetch_prepared_rows(
        sql.claim_jobs.after(sql.lock_server),
        server=token.server,
        version=token.version,
        limit=limit,
        request=request_id,
        only=None if only is None else list(only),
        staleness_multiplier=conf().staleness_multiplier,
        most=ANSWER_LIMIT,
    )
    if rows[0].server is None:
        refuse_claim(token, rows[0].obstacle)
    return rows


def find_writable_jobs(token: ServerToken, limit: int) -> list[UUID]:
    """The next jobs that the worker could have, without those that cannot be written."""

    @retried_atomic
    def try_claim(some: Sequence[UUID]) -> list[UUID]:
        fetch_claimed_rows(token, len(some), None, some)
        transaction.set_rollback(True)
        return list(some)

    def leave_out_job(job: UUID, error: DatabaseError) -> list[UUID]:
        record_left_out("claims", job, error)
        return []

    server = Server.objects.get(pk=token.server)
    waiting = WorkerJob.objects.filter(
        state=JobState.PENDING, namespace=server.namespace, required_tags__contained_by=server.tags
    ).exclude(kind=JobKind.CELERY)
    in_order = waiting.order_by("-priority", "available_at", "pk").values_list("pk", flat=True)
    next_ones = list(in_order[: CANDIDATES_LIMIT + limit])
    good: list[UUID] = []
    for first in range(0, len(next_ones), limit):
        good += run_in_halves(try_claim, next_ones[first : first + limit], leave_out_job)
        if len(good) >= limit:
            break
    return good


def refuse_claim(token: ServerToken, obstacle: str | None) -> Never:
    """Say why this server gets no work: the first filter that keeps it from any, `obstacle_to_work`."""
    server = Server.objects.filter(pk=token.server).first()
    if server is None:
        raise ServerUnknown
    if server.token_version != token.version:
        raise TokenRevoked("This server token was revoked: register again.")
    match obstacle:
        case "type":
            raise NotAWorker(f"Only a server of type WORKER claims jobs; this one is a {server.type}.")
        case "state" if server.state in states.RETIRED:
            raise ServerNotRunning
        case "state" if server.state == ServerState.DISCONNECTED:
            raise ServerDisconnected
        case "state" if server.state != ServerState.MAINTENANCE:
            raise NotRunningYet(f"This server is {server.state}; it gets work while it is RUNNING.")
        case "state" | "maintenance":
            raise Maintenance(describe_maintenance(server.cluster))
        case "cordon" if server.drain_deadline is not None:
            raise ServerCordoned(
                f"This server is being drained by {server.cordoned_by}: it gets no work until it is undrained."
            )
        case "cordon":
            raise ServerCordoned(f"This server is cordoned by {server.cordoned_by}: {server.cordon_reason}")
    raise HeartbeatStale


def describe_maintenance(cluster: str) -> str:
    """Who put the control plane in maintenance, or a cluster, and why; nothing where only a server is."""
    instance, of_cluster = Instance.objects.get(), ClusterMaintenance.objects.filter(cluster=cluster).first()
    if instance.maintenance_since is not None:
        return f"The control plane is in maintenance by {instance.maintenance_by}: {instance.maintenance_note}"
    return f"The cluster {cluster} is in maintenance by {of_cluster.by}: {of_cluster.note}" if of_cluster else ""
