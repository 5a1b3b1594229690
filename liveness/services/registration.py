"""A process makes itself known."""

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Never
from uuid import UUID

import orjson
import structlog

from liveness import states
from liveness.conf import conf
from liveness.errors import ServerNotRunning, TokenBound, TooManyServers, WrongRole
from liveness.models import ApiToken, Role
from liveness.services import tokens
from liveness.sql import sql
from liveness.sql.rows.registration import RegisteredServer

log = structlog.get_logger()


@dataclass(frozen=True)
class Registration:
    """What a process says of itself. What it leaves out of its config is judged by the defaults."""

    type: str
    name: str
    instance_id: UUID
    cluster: str = "default"
    hostname: str = ""
    pid: int | None = None
    version: str = ""
    tags: list[str] = field(default_factory=list)
    max_concurrent: int = 1
    capabilities: dict[str, Any] = field(default_factory=dict)
    heartbeat_interval: float | None = None
    timeout: float | None = None
    termination_grace_period: float | None = None
    worker_task_restart_strategy: str | None = None

    def effective_config(self) -> dict[str, Any]:
        """Its own config, stored with it, so that a change of the defaults moves no running server."""
        own = {name: getattr(self, name) for name in CONFIG_FIELDS}
        return {name: getattr(conf(), name) if value is None else value for name, value in own.items()}


CONFIG_FIELDS = ("heartbeat_interval", "timeout", "termination_grace_period", "worker_task_restart_strategy")


def register_server(token: str, registration: Registration) -> tuple[RegisteredServer, bool]:
    """The server row of a process and whether it is new. One round trip; the same instance is found again.

    Raises TokenRefused, WrongRole, TokenBound or TooManyServers; ServerNotRunning when the server of that instance has
    ended.
    """
    server = register_by_digest(tokens.digest_token(token), registration)
    if server is None:
        refuse(tokens.find_token(token), registration)
    return server, server.is_new


def refuse(token: ApiToken, registration: Registration) -> Never:
    """Say why a token that is known, and not revoked, lets this process not in."""
    refuse_role(token)
    errors: dict[str, list[str]] = {}
    if token.types is not None and registration.type not in token.types:
        errors["type"] = [f"This token registers {' and '.join(token.types)} only, not {registration.type}."]
    if token.cluster not in {None, registration.cluster}:
        errors["cluster"] = [
            f"This token registers in the cluster {token.cluster} only, not in {registration.cluster}."
        ]
    if token.tags is not None and (others := sorted({*registration.tags} - {*token.tags})):
        errors["tags"] = [f"This token registers with the tags {', '.join(token.tags)} only, not {', '.join(others)}."]
    if errors:
        raise TokenBound(" ".join(text for texts in errors.values() for text in texts), errors=errors)
    raise TooManyServers(
        f"This token is bound to {token.max_servers} servers, and so many are there: one of them must end, or be found "
        "lost, before another registers.",
        retry_after=math.ceil(conf().interval),
    )


def refuse_role(token: ApiToken) -> None:
    """Raises WrongRole where nobody may register with this token."""
    if token.role != Role.WORKER:
        raise WrongRole(f"Servers register with a token of role worker; this one is of role {token.role}.")


def register_by_digest(digest: bytes, registration: Registration) -> RegisteredServer | None:
    """The server row of a process, or None when the API token with this digest lets nobody in.

    Raises ServerNotRunning when the server of that instance has ended.
    """
    parameters = asdict(registration) | registration.effective_config()
    parameters["program"] = parameters.pop("version")
    parameters["reactivate_on_heartbeat"] = conf().reactivate_on_heartbeat
    parameters["capabilities"] = orjson.dumps(parameters["capabilities"]).decode()
    server = sql.register_server.after(sql.lock_registrar).fetch_row(digest=digest, **parameters)
    if server is None:
        return None
    if server.state in states.TERMINATED | states.RETIRED:
        raise ServerNotRunning(f"The server of this instance id is {server.state}: choose a new instance id.")
    if server.is_new:
        log.info(f"Server {server.name} registered", server=str(server.id), type=server.type, cluster=server.cluster)
    return server
