"""Register the control plane's own processes as servers, and send their heartbeats.

Most processes write their heartbeats directly to the database. A witness sends them over HTTP, as workers do, to prove
that heartbeats of workers can arrive.
"""

import os
import socket
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4, uuid5

import structlog

from controlplane.agent.api.backoff import heartbeat_answer_timeout
from controlplane.agent.api.client import AgentClient, Refused
from controlplane.agent.processes.process_metrics import ProcessMetrics
from controlplane.core.problems import Problem
from liveness import states
from liveness.conf import conf, witness_window
from liveness.errors import ServerDisconnected, ServerNotRunning, ServerUnknown, TokenRevoked
from liveness.models import OWN_DIGEST, ApiToken, Role, Server
from liveness.services import heartbeats, registration, signing_key, tokens
from liveness.services.heartbeats import ServerHeartbeat
from liveness.services.registration import Registration
from liveness.services.tokens import ServerToken
from liveness.states import ServerState, ServerType

log = structlog.get_logger()

CODES_TO_REGISTER_AGAIN = {error.code for error in (ServerDisconnected, ServerNotRunning, ServerUnknown, TokenRevoked)}


class Presence:
    """Presence of a process of the control plane as a server. Not thread-safe.

    Without WITNESS_URL a web process sends its heartbeats over HTTP to `itself`. With WITNESS_URL executors send theirs
    to that address. Processes with the same `instance_id` are one server; `pid` is the process id that is shown.
    """

    def __init__(
        self,
        type: ServerType,
        name: str,
        version: str = "",
        itself: Callable[[], AgentClient] | None = None,
        *,
        instance_id: UUID | None = None,
        pid: int | None = None,
    ) -> None:
        self.type, self.name, self.version = type, name, version
        self.instance_id = instance_id or uuid4()
        self.pid = pid or os.getpid()
        self.server: Any = None
        url = conf().witness_url
        self.witness = itself if url is None else (lambda: AgentClient(url)) if type == ServerType.EXECUTOR else None
        self.over_http: AgentClient | None = None
        self.metrics = ProcessMetrics()

    def beat(self, state: ServerState = ServerState.RUNNING) -> float:
        """Send a heartbeat and return the seconds until the next one. Register first if needed.

        A server that was lost registers again as a new one. Raise Problem, Refused, Unreachable or a database error;
        the caller then tries again.
        """
        if self.server is None:
            self.register()
        try:
            self.send_heartbeat(state)
        except (Problem, Refused) as refusal:
            if refusal.code not in CODES_TO_REGISTER_AGAIN or state != ServerState.RUNNING:
                raise
            # This process runs but counts as lost, so it registers as a new server. It holds no jobs that could be
            # lost.
            log.warning(f"{self.name} was lost and registers again", was=str(self.server.id), code=refusal.code)
            self.server, self.instance_id = None, self.next_instance_id
            self.register()
            self.send_heartbeat(state)
        interval: float = self.server.heartbeat_interval
        return interval if self.witness is None else min(interval, witness_window() / 2)

    def leave(self) -> None:
        """Report that the process has ended. This never uses HTTP, because the web processes may already have ended."""
        if self.server is not None:
            heartbeats.record_heartbeat(
                self.token, ServerHeartbeat(ServerState.TERMINATED_GRACEFULLY, reason="it was stopped")
            )

    @property
    def next_instance_id(self) -> UUID:
        """Return the next instance id, after this server was lost. All processes of one server compute the same id."""
        return uuid5(self.instance_id, "next")

    @property
    def token(self) -> ServerToken:
        return ServerToken(self.server.id, self.server.token_version)

    def register(self) -> None:
        signing_key.refuse_another_key()
        ApiToken.objects.get_or_create(digest=OWN_DIGEST, defaults={"name": "control plane", "role": Role.WORKER})
        own_registration = Registration(
            type=self.type,
            name=self.name,
            instance_id=self.instance_id,
            hostname=socket.gethostname(),
            pid=self.pid,
            version=self.version,
        )
        try:
            self.server = registration.register_by_digest(OWN_DIGEST, own_registration)
        except ServerNotRunning:
            # The response to our registration was lost, and the server has ended since then.
            self.instance_id = self.next_instance_id
            raise
        if self.server is None:
            raise TokenRevoked("The token of the control plane's own processes was revoked.")

    def send_heartbeat(self, state: ServerState) -> None:
        if self.witness is None:
            heartbeats.record_heartbeat(self.token, ServerHeartbeat(state, self.metrics.read()))
            return
        if self.over_http is None:
            self.over_http = self.witness()
            self.over_http.timeout = heartbeat_answer_timeout(conf().timeout, conf().heartbeat_interval)
        # A worker sends two kinds of heartbeats: without attempts and with attempts. Only the second heartbeat here
        # counts as witness, so it proves that both kinds arrive.
        lists: tuple[dict[str, Any], ...] = ({"metrics": self.metrics.read()}, {"claimed": [], "running": []})
        for fields in lists:
            signed = tokens.sign_server_token(self.server.id, self.server.token_version, self.server.token_id)
            self.over_http.post(f"/servers/{self.server.id}/heartbeat", {"state": state.value, **fields}, signed)


def end_process(type: ServerType, name: str, pid: int) -> None:
    """Record the end of a process of the control plane on this machine, found by its process id."""
    servers = Server.objects.filter(
        token__digest=OWN_DIGEST, type=type, name=name, pid=pid, hostname=socket.gethostname()
    )
    for server in servers.filter(state__in=states.MAY_HEARTBEAT):
        beat = ServerHeartbeat(ServerState.TERMINATED_GRACEFULLY, reason="it was stopped")
        heartbeats.record_heartbeat(ServerToken(server.id, server.token_version), beat)
