"""The control plane's own processes are servers too. They register here, and beat without a detour over HTTP, but for
those whose beats prove that the beats of workers get in: these go the way that the beats of workers go."""

import os
import socket
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import structlog

from controlplane.agent.backoff import heartbeat_answer_timeout
from controlplane.agent.client import Client, Refused
from controlplane.agent.process_metrics import ProcessMetrics
from controlplane.core.problems import Problem
from liveness.conf import conf, witness_window
from liveness.errors import ServerDisconnected, ServerNotRunning, ServerUnknown, TokenRevoked
from liveness.models import OWN_DIGEST, ApiToken, Role
from liveness.services import heartbeats, registration, tokens
from liveness.services.heartbeats import ServerHeartbeat
from liveness.services.registration import Registration
from liveness.services.tokens import ServerToken
from liveness.states import ServerState, ServerType

log = structlog.get_logger()

CODES_TO_REGISTER_ANEW = {error.code for error in (ServerDisconnected, ServerNotRunning, ServerUnknown, TokenRevoked)}


class Presence:
    """One process of the control plane as a server; for one thread at a time.

    A web process beats over HTTP to `itself`; where WITNESS_URL says how workers reach it, an executor beats there.
    """

    def __init__(
        self, type: ServerType, name: str, version: str = "", itself: Callable[[], Client] | None = None
    ) -> None:
        self.type, self.name, self.version = type, name, version
        self.instance_id = uuid4()
        self.server: Any = None
        url = conf().witness_url
        self.witness = itself if url is None else (lambda: Client(url)) if type == ServerType.EXECUTOR else None
        self.over_http: Client | None = None
        self.metrics = ProcessMetrics()

    def beat(self, state: ServerState = ServerState.RUNNING) -> float:
        """Be heard, as a new server when there is none yet or it was found dead; seconds until the next beat.

        Raises Problem, Refused, Unreachable or what the database raises; then try again.
        """
        if self.server is None:
            self.register()
        try:
            self.send_heartbeat(state)
        except (Problem, Refused) as refusal:
            if refusal.code not in CODES_TO_REGISTER_ANEW or state != ServerState.RUNNING:
                raise
            # It holds no jobs, so nothing is lost with its old id; and it lives, so it must not stay dead.
            log.warning(f"{self.name} was given up: it registers again", was=str(self.server.id), code=refusal.code)
            self.server, self.instance_id = None, uuid4()
            self.register()
            self.send_heartbeat(state)
        interval: float = self.server.heartbeat_interval
        return interval if self.witness is None else min(interval, witness_window() / 2)

    def leave(self) -> None:
        """Say that it has ended; never over HTTP: the web processes may have ended before."""
        if self.server is not None:
            heartbeats.record_heartbeat(
                self.token, ServerHeartbeat(ServerState.TERMINATED_GRACEFULLY, reason="it was stopped")
            )

    @property
    def token(self) -> ServerToken:
        return ServerToken(self.server.id, self.server.token_version)

    def register(self) -> None:
        ApiToken.objects.get_or_create(digest=OWN_DIGEST, defaults={"name": "control plane", "role": Role.WORKER})
        own_registration = Registration(
            type=self.type,
            name=self.name,
            instance_id=self.instance_id,
            hostname=socket.gethostname(),
            pid=os.getpid(),
            version=self.version,
        )
        try:
            self.server = registration.register_by_digest(OWN_DIGEST, own_registration)
        except ServerNotRunning:
            self.instance_id = uuid4()  # the answer to our registration was lost, and it was given up meanwhile
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
        # All that the beats of workers do. The second, which lists attempts, is the witness of the first as well.
        lists: tuple[dict[str, Any], ...] = ({"metrics": self.metrics.read()}, {"claimed": [], "running": []})
        for fields in lists:
            signed = tokens.sign_server_token(self.server.id, self.server.token_version, self.server.token_id)
            self.over_http.post(f"/servers/{self.server.id}/heartbeat", {"state": state.value, **fields}, signed)
