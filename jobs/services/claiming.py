"""Claims: give waiting jobs to workers that ask for work."""

from collections.abc import Sequence
from typing import Never
from uuid import UUID

from django.db import DatabaseError

from controlplane.core.database import transaction
from controlplane.core.paging import ANSWER_LIMIT
from controlplane.core.transactions import is_transient_error, record_left_out, retried_atomic, run_in_halves
from jobs.errors import HeartbeatStale, NotAWorker, NotRunningYet, ServerCordoned, ServerInMaintenance
from jobs.models import WorkerJob
from jobs.services import limits
from jobs.services.claim_floors import floors
from jobs.services.hints import announcer
from jobs.sql import sql
from jobs.sql.rows.claiming import ClaimedAttempt
from jobs.states import JobKind, JobState
from liveness.conf import conf
from liveness.errors import ServerDisconnected, ServerNotRunning, ServerUnknown, TokenRevoked
from liveness.models import ClusterMaintenance, Instance, Server
from liveness.services import detection
from liveness.services.tokens import ServerToken
from liveness.states import ServerState

CANDIDATES_LIMIT = 1000
"""Number of jobs that are tried one by one for a worker after a claim failed, because a row cannot be written."""


def claim_jobs(
    token: ServerToken, limit: int, request_id: UUID | None = None, ahead: int = 0
) -> tuple[list[ClaimedAttempt], int | None]:
    """Give a worker at most `limit` attempts, as many as it has room for and as fit into one response. One round trip.

    It may hold `ahead` attempts more than it has slots. Also return the slots that the next job needs, if they are not
    free. None: no job waits for more slots.

    A call with the same `request_id` returns the same attempts. Raise the error that explains why a server gets no
    work (see `refuse_claim`).
    """
    if announcer.enabled:
        limits.regular_look.take()
    try:
        rows = fetch_claimed_rows(token, limit, request_id, ahead=ahead)
        if rows[0].parked and rows[0].id is None:
            # It met only jobs that may not start. Behind them others may wait.
            rows = fetch_claimed_rows(token, limit, request_id, ahead=ahead)
    except DatabaseError as error:
        if is_transient_error(error):
            raise
        rows = fetch_claimed_rows(token, limit, request_id, find_writable_jobs(token, max(1, limit + ahead)), ahead)
    return [row for row in rows if row.id is not None], rows[0].slots_wanted


def fetch_claimed_rows(
    token: ServerToken, limit: int, request_id: UUID | None, only: Sequence[UUID] | None = None, ahead: int = 0
) -> list[ClaimedAttempt]:
    """Run the claim and return its rows. `only` restricts it to these jobs (None: all jobs)."""
    # Floors are used only by serving processes, because only they are notified of jobs that come back.
    known = floors.known_to(token.server) if announcer.enabled and only is None else None
    rows = sql.claim_jobs.after(sql.lock_server).fetch_rows(
        server=token.server,
        version=token.version,
        limit=limit,
        ahead=ahead,
        request=request_id,
        only=None if only is None else list(only),
        staleness_multiplier=conf().staleness_multiplier,
        most=ANSWER_LIMIT,
        known=known and known.text,
    )
    if known and rows[0].seen is not None:
        floors.learn(token.server, known, rows[0].seen)
    if rows[0].parked:
        limits.settle_soon()
    if rows[0].server is None:
        refuse_claim(token, rows[0].obstacle)
    return rows


def find_writable_jobs(token: ServerToken, limit: int) -> list[UUID]:
    """Return the next jobs that the worker could get and that can be written to the database."""

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
    in_order = waiting.order_by("-priority", "turn", "available_at", "pk").values_list("pk", flat=True)
    next_ones = list(in_order[: CANDIDATES_LIMIT + limit])
    good: list[UUID] = []
    for first in range(0, len(next_ones), limit):
        good += run_in_halves(try_claim, next_ones[first : first + limit], leave_out_job)
        if len(good) >= limit:
            break
    return good


def refuse_claim(token: ServerToken, obstacle: str | None) -> Never:
    """Raise the error for the first filter that keeps this server from any work (rule `obstacle_to_work`)."""
    server = Server.objects.filter(pk=token.server).first()
    if server is None:
        raise ServerUnknown
    if server.token_version != token.version:
        raise TokenRevoked("This server token was revoked: register again.")
    match obstacle:
        case "type":
            raise NotAWorker(f"Only a server of type WORKER claims jobs; this one has the type {server.type}.")
        case "state" if server.has_ended:
            raise ServerNotRunning
        case "state" if server.state == ServerState.DISCONNECTED:
            raise ServerDisconnected
        case "state" if server.state != ServerState.MAINTENANCE:
            raise NotRunningYet(f"This server is {server.state}. It gets work when it is RUNNING.")
        case "state" | "maintenance":
            raise ServerInMaintenance(describe_maintenance(server.cluster))
        case "cordon" if server.drain_deadline is not None:
            raise ServerCordoned(
                f"This server is being drained by {server.cordoned_by}: it gets no work until it is undrained."
            )
        case "cordon":
            raise ServerCordoned(f"This server is cordoned by {server.cordoned_by}: {server.cordon_reason}")
    detection.log_stale_workers(token.server)
    raise HeartbeatStale


def describe_maintenance(cluster: str) -> str:
    """Return who started the maintenance of the control plane or the cluster, and why.

    Empty: only the server is in maintenance.
    """
    instance, of_cluster = Instance.objects.get(), ClusterMaintenance.objects.filter(cluster=cluster).first()
    if instance.maintenance_since is not None:
        return f"The control plane is in maintenance by {instance.maintenance_by}: {instance.maintenance_note}"
    return f"The cluster {cluster} is in maintenance by {of_cluster.by}: {of_cluster.note}" if of_cluster else ""
