"""Registration of servers."""

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Never
from uuid import UUID

import structlog

from controlplane.core.json_bodies import write_json
from liveness import states
from liveness.conf import conf
from liveness.errors import ServerNotRunning, TokenBound, TooManyServers, WrongRole
from liveness.models import ApiToken, Role
from liveness.services import tokens
from liveness.sql import sql
from liveness.sql.rows.registration import RegistrationRow

log = structlog.get_logger()


@dataclass(frozen=True)
class Registration:
    """Description of a server, as its process sends it. A None in its config stands for the default of the settings."""

    type: str
    name: str
    instance_id: UUID
    cluster: str = "default"
    hostname: str = ""
    pid: int | None = None
    version: str = ""
    tags: list[str] = field(default_factory=list)
    given_tags: list[str] | None = None
    max_concurrent: int = 1
    capabilities: dict[str, Any] = field(default_factory=dict)
    heartbeat_interval: float | None = None
    timeout: float | None = None
    termination_grace_period: float | None = None
    worker_task_restart_strategy: str | None = None

    def effective_config(self) -> dict[str, Any]:
        """Return the full config to store with the server, so that changed defaults do not affect running servers."""
        own = {name: getattr(self, name) for name in CONFIG_FIELDS}
        return {name: getattr(conf(), name) if value is None else value for name, value in own.items()}


CONFIG_FIELDS = ("heartbeat_interval", "timeout", "termination_grace_period", "worker_task_restart_strategy")


def register_server(token: str, registration: Registration) -> tuple[RegistrationRow, bool]:
    """Register a process in one round trip. Return its server, and True if it is new.

    The same instance id finds the same server again. Raise TokenRefused, WrongRole, TokenBound or TooManyServers, or
    ServerNotRunning if the server of this instance id has ended.
    """
    server = register_by_digest(tokens.digest_token(token), registration)
    if server is None:
        refuse(tokens.find_token(token), registration)
    return server, server.is_new


def refuse(token: ApiToken, registration: Registration) -> Never:
    """Raise the Problem that explains why this valid token may not register this process."""
    refuse_role(token)
    errors: dict[str, list[str]] = {}
    if token.types is not None and registration.type not in token.types:
        errors["type"] = [f"The token may only register {' and '.join(token.types)}, not {registration.type}."]
    if token.cluster not in {None, registration.cluster}:
        errors["cluster"] = [
            f"The token may only register servers of the cluster {token.cluster}, not of {registration.cluster}."
        ]
    if token.tags is not None and (others := sorted({*registration.tags} - {*token.tags})):
        errors["tags"] = [
            f"The token may only register servers with the tags {', '.join(token.tags)}, not {', '.join(others)}."
        ]
    if errors:
        raise TokenBound(" ".join(text for texts in errors.values() for text in texts), errors=errors)
    raise TooManyServers(
        f"The token already has {token.max_servers} servers, the most it may have. One of them must end, or be found "
        "lost, before another can register.",
        retry_after=math.ceil(conf().interval),
    )


def refuse_role(token: ApiToken) -> None:
    """Raise WrongRole if the token may not register servers."""
    if token.role != Role.WORKER:
        raise WrongRole(f"Servers register with a token of the role worker; this one has the role {token.role}.")


def register_by_digest(digest: bytes, registration: Registration) -> RegistrationRow | None:
    """Register a process with the API token of this digest. Return its server, or None if the token may not.

    Raise ServerNotRunning if the server of this instance id has ended.
    """
    parameters = asdict(registration) | registration.effective_config()
    parameters["program"] = parameters.pop("version")
    parameters["reactivate_on_heartbeat"] = conf().reactivate_on_heartbeat
    parameters["capabilities"] = write_json(parameters["capabilities"]).decode()
    server = sql.register_server.after(sql.lock_registrar).fetch_row(digest=digest, **parameters)
    if server is None:
        return None
    if server.state in states.TERMINATED | states.RETIRED:
        raise ServerNotRunning(f"The server of this instance id is {server.state}. Choose a new instance id.")
    if server.is_new:
        log.info(f"Server {server.name} registered", server=str(server.id), type=server.type, cluster=server.cluster)
    return server
