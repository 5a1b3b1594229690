"""The registration of this process: its id, its token, its config, and the calls it may make."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import structlog

from controlplane.agent.api.backoff import full_jitter, heartbeat_answer_timeout, heartbeat_retry_window
from controlplane.agent.api.client import ENDS_WORK, AgentClient, Refused, Unreachable
from controlplane.agent.api.outage import Outage
from controlplane.agent.fence import read_uptime
from controlplane.agent.limits import FENCE_MARGIN

log = structlog.get_logger()
REGISTRATION_CAP = 15.0
WRONG_ADDRESS = (301, 302, 303, 307, 308, 404)
TOO_LARGE = 413  # even if a proxy sent it: the same body would be refused again
ANY_NUMBER = 1_000_000  # jobs: as many as there are free slots


@dataclass(frozen=True)
class ServerConfig:
    """The intervals and timeouts by which the control plane judges this server, in seconds."""

    heartbeat_interval: float
    timeout: float
    termination_grace_period: float
    claimer_heartbeat_interval: float
    runner_heartbeat_interval: float
    worker_task_restart_strategy: str

    @property
    def last_fence_seconds(self) -> float | None:
        """Seconds from the TERMINATING heartbeat to the fence if its response is lost. None means no fence.

        The control plane counts the grace period from that heartbeat, and not from the loss of this server. The
        response to an earlier heartbeat may have promised more.
        """
        match self.worker_task_restart_strategy:
            case "NEVER":
                return None
            case "IMMEDIATELY":
                return self.timeout * (1 - FENCE_MARGIN)
        return max(self.timeout, self.termination_grace_period) - self.timeout * FENCE_MARGIN

    @property
    def heartbeat_answer_timeout(self) -> float:
        return heartbeat_answer_timeout(self.timeout, self.heartbeat_interval)

    @property
    def heartbeat_retry_window(self) -> float:
        return heartbeat_retry_window(self.timeout, self.heartbeat_interval)

    @classmethod
    def from_answer(cls, config: dict[str, Any]) -> ServerConfig:
        return cls(
            heartbeat_interval=float(config["heartbeat_interval_seconds"]),
            timeout=float(config["timeout_seconds"]),
            termination_grace_period=float(config["termination_grace_period_seconds"]),
            claimer_heartbeat_interval=float(config.get("claimer_heartbeat_interval_seconds") or 30),
            runner_heartbeat_interval=float(config.get("runner_heartbeat_interval_seconds") or 30),
            worker_task_restart_strategy=str(config["worker_task_restart_strategy"]),
        )


@dataclass(frozen=True)
class RegisteredServer:
    """A registered server. `registered_at` (uptime clock) is the start of the successful request.

    Without a `token`, its first call registers the instance again (`again`), because no token is kept on disk.
    """

    client: AgentClient
    id: str
    token: str
    config: ServerConfig
    fence_after: float | None
    registered_at: float
    outage: Outage = field(init=False, compare=False, repr=False)
    again: Callable[[], RegisteredServer] | None = field(default=None, compare=False, repr=False)
    """Register the same instance again. The control plane returns the same server with a token that it accepts."""
    instance_id: str = ""
    registration_token: str = field(default="", compare=False, repr=False)
    """The API token with which the server registered. A successor of this agent compares it with its own."""
    renewed: list[str] = field(default_factory=list, compare=False, repr=False)
    """The token that replaced `token`, if there is one."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "outage", Outage(self.client.base))

    def send_heartbeat(self, body: dict[str, Any]) -> dict[str, Any]:
        """Send one heartbeat and return the response. Raise Refused or Unreachable.

        If the signing key of the control plane has changed, its response has a new token. Later calls use that token.
        """
        answer = self.post("heartbeat", body, min(self.client.timeout, self.config.heartbeat_answer_timeout))
        if token := answer.pop("token", None):
            self.renewed[:] = [str(token)]
        return answer

    def send_last_heartbeat(self, state: str, until: float) -> bool:
        """Send the last heartbeat until it is answered. Raise Refused.

        Return False if the next try would start after `until` (monotonic).
        """
        failures = 0
        while True:
            try:
                self.send_heartbeat({"state": state})
                return True
            except Unreachable as error:
                failures += 1
                pause = full_jitter(failures, 1.0)
                if time.monotonic() + pause >= until:
                    log.warning("Last heartbeat not answered", why=str(error))
                    return False
                time.sleep(pause)

    @property
    def present_token(self) -> str:
        return self.renewed[-1] if self.renewed else self.token

    def post(self, call: str, body: dict[str, Any], within: float | None = None) -> dict[str, Any]:
        """Make a call on this server's own resource and return the response. Raise Refused or Unreachable."""
        with self.outage.watching(call), self.retrying_doubtful_refusals():
            if not self.present_token:
                self._register_again()
            return self.client.post(f"/servers/{self.id}/{call}", body, self.present_token, within)

    @contextmanager
    def retrying_doubtful_refusals(self) -> Iterator[None]:
        """Raise Unreachable for a refusal that does not prove that the control plane wants this server to stop.

        A proxy, a captive portal or a web process with another key may have sent it.
        """
        try:
            yield
        except Refused as refused:
            is_foreign = not refused.code and refused.status != TOO_LARGE
            if not is_foreign and (refused.status not in (401, 403) or refused.code in ENDS_WORK):
                raise
            self.client.reconnect()
            raise Unreachable(
                str(refused), status=refused.status, code=refused.code, detail=refused.detail
            ) from refused

    def renew_token(self) -> None:
        """Get a new token after the control plane did not know ours. Raise Refused or Unreachable.

        The signing key was replaced. This server keeps its work.
        """
        if self.again is not None:
            self._register_again()
            log.warning("The control plane did not know this server's token and issued a new one", server=self.id)

    def _register_again(self) -> None:
        """Get a token by registering the same instance again. Raise Refused or Unreachable."""
        if self.again is None:
            raise Refused(401, "token_missing", "this server has no token and cannot register again")
        again = self.again()
        if again.id != self.id:
            again.end_unused()
            raise Refused(410, "server_unknown", "the control plane registered this instance as another server")
        self.renewed[:] = [again.token]

    def end_unused(self) -> None:
        """End a server that was registered only because the control plane did not know the instance any more."""
        try:
            self.send_last_heartbeat("TERMINATED_GRACEFULLY", time.monotonic())
        except Refused as refused:
            log.warning("Last heartbeat refused", code=refused.code, detail=refused.detail)

    def wait_for_hint(self, seconds: float) -> int:
        """Wait up to `seconds` for work. Return the number of jobs to claim, and 0 if there is no work.

        Return ANY_NUMBER if the control plane sets no number. Raise Refused or Unreachable.
        """
        path = f"/servers/{self.id}/hints?wait={seconds:g}"
        with self.retrying_doubtful_refusals():
            answer = self.client.request("GET", path, self.present_token, within=seconds + self.client.timeout)
        return int(answer.get("jobs") or ANY_NUMBER) if answer.get("work") is True else 0


def register_server(
    client: AgentClient,
    read_token: Callable[[], str],
    description: dict[str, Any],
    wait: Callable[[float], object],
    *,
    was_known: bool = False,
) -> RegisteredServer:
    """Register this process, and retry until the control plane answers.

    `read_token` is called before each try, so that a new token works without a restart. `wait` gets the seconds until
    the next try. `was_known` means that the control plane has registered this process before, so a different page at
    its address is temporary. All tries send the same instance id, so a registration whose response was lost is not made
    twice.

    Raise Refused if the control plane refuses the registration, or if the address is not that of a control plane.
    """
    instance_id, failures, outage = uuid.uuid4(), 0, Outage(client.base)
    while True:
        token = read_token()
        try:
            with outage.watching("register"):
                return register_once(client, token, description, str(instance_id))
        except Unreachable as error:
            failures += 1
            pause = min(REGISTRATION_CAP, (error.retry_after or 0) + full_jitter(failures, REGISTRATION_CAP))
        except Refused as refused:
            is_temporary = not refused.code and (was_known or refused.status not in WRONG_ADDRESS)
            if is_temporary:
                outage.record_miss("register", str(refused))
            elif refused.status == 401 and read_token() != token:
                is_temporary = True  # the token was replaced during this call
            elif refused.code != "server_not_running":
                raise
            # The response to an earlier try was lost, and that server is dead by now. Its id cannot register again.
            if not is_temporary:
                instance_id = uuid.uuid4()
            failures += 1
            pause = full_jitter(failures, REGISTRATION_CAP)
        wait(pause)


def register_once(client: AgentClient, token: str, description: dict[str, Any], instance_id: str) -> RegisteredServer:
    """Try to register once. The same instance id always gives the same server. Raise Refused or Unreachable."""
    started = read_uptime()
    answer = client.post("/servers", {**description, "instance_id": instance_id}, token)
    again = partial(register_once, client, token, description, instance_id)
    return replace(_parse_server(client, answer, started, again), instance_id=instance_id, registration_token=token)


def _parse_server(
    client: AgentClient, answer: dict[str, Any], started: float, again: Callable[[], RegisteredServer]
) -> RegisteredServer:
    try:
        fence_after = answer.get("fence_after_seconds")
        return RegisteredServer(
            client=client,
            id=str(answer["id"]),
            token=str(answer["token"]),
            config=ServerConfig.from_answer(answer["config"]),
            fence_after=None if fence_after is None else float(fence_after),
            registered_at=started,
            again=again,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise Unreachable(f"the response to the registration has no {error}") from error
