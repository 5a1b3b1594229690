"""A worker asks for work."""

from dataclasses import dataclass
from typing import Any, Never
from uuid import UUID

import orjson

from jobs.errors import HeartbeatStale, Maintenance, NotAWorker, NotRunningYet, ServerCordoned
from jobs.sql import sql
from liveness import states
from liveness.conf import conf
from liveness.errors import ServerDisconnected, ServerNotRunning, ServerUnknown, TokenRevoked
from liveness.models import Instance, Server
from liveness.services.tokens import ServerToken
from liveness.states import ServerState, ServerType


@dataclass(frozen=True)
class Claimed:
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


def claim(token: ServerToken, limit: int, request_id: UUID | None = None) -> list[Claimed]:
    """At most `limit` attempts for the worker, as many as it has room for. One round trip.

    The same `request_id` again returns the same attempts. Raises what says why a server gets no work.
    """
    rows = sql.rows(
        "lock_server",
        "claim",
        server=token.server,
        version=token.version,
        limit=limit,
        request=request_id,
        staleness_multiplier=conf().staleness_multiplier,
    )
    if rows[0].server is None:
        refuse(token)
    return [
        Claimed(
            row.id, row.number, row.job, row.kind, orjson.loads(row.action),
            None if row.payload is None else orjson.loads(row.payload), row.timeout_seconds,
            row.execution, row.step,
        )
        for row in rows
        if row.id is not None
    ]  # fmt: skip


def refuse(token: ServerToken) -> Never:
    """Say why this server gets no work."""
    server = Server.objects.filter(pk=token.server).first()
    if server is None:
        raise ServerUnknown
    if server.token_version != token.version:
        raise TokenRevoked("This server token was revoked: register anew.")
    if server.type != ServerType.WORKER:
        raise NotAWorker(f"Only a server of type WORKER claims jobs; this one is a {server.type}.")
    if server.state in states.GONE:
        raise ServerNotRunning
    if server.state == ServerState.DISCONNECTED:
        raise ServerDisconnected
    instance = Instance.objects.get()
    if instance.maintenance_since is not None:
        raise Maintenance(
            f"The control plane is in maintenance by {instance.maintenance_by}: {instance.maintenance_note}"
        )
    if server.state == ServerState.MAINTENANCE:
        raise Maintenance
    if server.state != ServerState.RUNNING:
        raise NotRunningYet(f"This server is {server.state}; it gets work while it is RUNNING.")
    if server.drain_deadline is not None:
        raise ServerCordoned(
            f"This server is being drained by {server.cordoned_by}: it gets no work until it is undrained."
        )
    if server.cordoned_by is not None:
        raise ServerCordoned(f"This server is cordoned by {server.cordoned_by}: {server.cordon_reason}")
    raise HeartbeatStale
