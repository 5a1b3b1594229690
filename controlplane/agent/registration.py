"""One registration of this process: its id, its token, its config, and what it may say."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import structlog

from controlplane.agent.backoff import full_jitter, heartbeat_answer_timeout, heartbeat_retry_window
from controlplane.agent.client import Client, Refused, Unreachable
from controlplane.agent.fence import read_uptime
from controlplane.agent.limits import FENCE_MARGIN
from controlplane.agent.outage import Outage

log = structlog.get_logger()
REGISTRATION_CAP = 15.0
ANY_NUMBER = 1_000_000  # jobs: as many as there is room for


@dataclass(frozen=True)
class ServerConfig:
    """What the control plane judges this server by; all in seconds."""

    heartbeat_interval: float
    timeout: float
    termination_grace_period: float
    claimer_heartbeat_interval: float
    runner_heartbeat_interval: float
    worker_task_restart_strategy: str

    @property
    def last_fence_seconds(self) -> float | None:
        """Seconds from saying TERMINATING to the fence, should the answer to that be lost (None: there is none).

        The control plane counts the grace period from then, and no longer from the loss of this server: what was
        answered to an earlier heartbeat may promise more.
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
    """A registered server. `registered_at` (uptime clock) is the start of the answered request."""

    client: Client
    id: str
    token: str
    config: ServerConfig
    fence_after: float | None
    registered_at: float
    outage: Outage = field(default_factory=Outage, compare=False, repr=False)

    def send_heartbeat(self, body: dict[str, Any]) -> dict[str, Any]:
        """One heartbeat, which waits no longer than any call; raises Refused or Unreachable."""
        return self.post("heartbeat", body, min(self.client.timeout, self.config.heartbeat_answer_timeout))

    def send_last_heartbeat(self, state: str, until: float) -> bool:
        """Again until it is answered (True) or the next try would begin after `until` (monotonic); raises Refused."""
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

    def post(self, call: str, body: dict[str, Any], within: float | None = None) -> dict[str, Any]:
        """Any call on this server's own resource; raises Refused or Unreachable."""
        with self.outage.watching(call):
            return self.client.post(f"/servers/{self.id}/{call}", body, self.token, within)

    def wait_for_hint(self, seconds: float) -> int:
        """How many jobs this worker is to claim, after so many seconds at the latest: 0 where there is no work,
        ANY_NUMBER where the control plane leaves that to it. Raises Refused or Unreachable."""
        path = f"/servers/{self.id}/hints?wait={seconds:g}"
        answer = self.client.request("GET", path, self.token, within=seconds + self.client.timeout)
        return int(answer.get("jobs") or ANY_NUMBER) if answer.get("work") is True else 0


def register_server(
    client: Client, token: str, description: dict[str, Any], wait: Callable[[float], object]
) -> RegisteredServer:
    """Register until answered; raises Refused when the answer is no.

    The instance id is ours, so a registration whose answer was lost is found again, not made twice.
    """
    instance_id, failures, outage = uuid.uuid4(), 0, Outage()
    while True:
        try:
            with outage.watching("register"):
                return register_once(client, token, description, str(instance_id))
        except Unreachable as error:
            failures += 1
            pause = min(REGISTRATION_CAP, (error.retry_after or 0) + full_jitter(failures, REGISTRATION_CAP))
        except Refused as refused:
            if refused.code != "server_not_running":
                raise
            # Our earlier, unheard registration has been given up meanwhile, and an id never comes back.
            instance_id, failures = uuid.uuid4(), failures + 1
            pause = full_jitter(failures, REGISTRATION_CAP)
        wait(pause)


def register_once(client: Client, token: str, description: dict[str, Any], instance_id: str) -> RegisteredServer:
    """One try; the same instance id again is the same server. Raises Refused or Unreachable."""
    started = read_uptime()
    answer = client.post("/servers", {**description, "instance_id": instance_id}, token)
    return _parse_server(client, answer, started)


def _parse_server(client: Client, answer: dict[str, Any], started: float) -> RegisteredServer:
    try:
        fence_after = answer.get("fence_after_seconds")
        return RegisteredServer(
            client=client,
            id=str(answer["id"]),
            token=str(answer["token"]),
            config=ServerConfig.from_answer(answer["config"]),
            fence_after=None if fence_after is None else float(fence_after),
            registered_at=started,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise Unreachable(f"a registration answer without {error}") from error
