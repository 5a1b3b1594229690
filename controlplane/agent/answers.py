"""Actions on the answers of the control plane to heartbeats, claims and reports. Main thread only."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import structlog

from controlplane.agent.api.client import Refused
from controlplane.agent.api.heartbeat_thread import HeartbeatThread
from controlplane.agent.api.instructions import Instructions
from controlplane.agent.api.registration import RegisteredServer
from controlplane.agent.api.reports import KILL_PATIENCE
from controlplane.agent.api.transport import ClaimResult, ReportResult, TransportThread
from controlplane.agent.attempts import AttemptTracker
from controlplane.agent.fence import Fence
from controlplane.agent.fitness import status_file
from controlplane.agent.shutdown import Shutdown
from controlplane.agent.stack_dumps import StackResult

log = structlog.get_logger()


@dataclass
class AnswerHandler:
    """Follow the instructions and refusals of the control plane.

    `kill_everything` kills all code and waits for it. `adapt` takes over the slots and tags that the control plane has.
    """

    name: str
    server: RegisteredServer
    attempts: AttemptTracker
    fence: Fence
    heart: HeartbeatThread
    transport: TransportThread
    shutdown: Shutdown
    kill_everything: Callable[[], None]
    adapt: Callable[[int, list[str]], None]
    instructions: Instructions | None = None  # None until a heartbeat was answered
    is_dead: bool = False
    """The control plane has declared this server dead: it refuses all reports."""
    is_purged: bool = False
    has_new_claims: bool = False
    """A claim has ended, and its jobs are not counted yet. The next claim may begin only after that."""

    @property
    def blocks_claims(self) -> bool:
        return self.instructions is None or self.instructions.blocks_claims

    def handle(self, message: Any) -> None:
        if isinstance(message, ClaimResult):
            self.has_new_claims = True
            self.attempts.accept_claims(message.items)
        elif isinstance(message, ReportResult):
            self.attempts.record_answer(message.report, message.result)
        elif isinstance(message, StackResult):
            self.attempts.stacks.report(message)
        elif isinstance(message, Refused):
            self._handle_refusal(message)
        else:
            self._follow(message)

    def enforce_drain(self) -> None:
        """Give everything back at the deadline of a drain. It is a time by the clock of the control plane."""
        drain_at = self.instructions.drain_at if self.instructions else None
        if drain_at is not None and time.time() + self.server.client.clock_offset >= drain_at:
            self.attempts.ends.release_all("drain_deadline", KILL_PATIENCE)

    def _follow(self, answer: dict[str, Any]) -> None:
        self.instructions = instructions = Instructions.parse(answer)
        self.transport.retry_now()
        self.shutdown.renew_reapers()
        if instructions.config:
            self.adapt(*instructions.config)
        self.attempts.stacks.begin(instructions.dump)
        self.attempts.ends.cancel(instructions.cancel)
        self.attempts.ends.kill_lost(instructions.lost)
        if not self.shutdown.reason:
            self.heart.report_state("MAINTENANCE" if instructions.is_in_maintenance else "RUNNING")
        timeout = self.server.config.timeout
        try:
            status_file.write_status(self.name, self.server.id, instructions.state, timeout, self.fence.clock())
        except OSError as error:
            log.warning("Status file not written: --check will fail", why=str(error))

    def _handle_refusal(self, refused: Refused) -> None:
        if refused.code == "server_unknown":
            log.warning("This server was purged: registering again", server=self.server.id)
            self.is_dead = self.is_purged = True
            self.kill_everything()
        elif refused.code == "server_not_running":
            log.error("Declared dead, its jobs are elsewhere: killing all", server=self.server.id)
            self.is_dead = True
            self.kill_everything()
        elif refused.code in ("server_disconnected", "token_revoked") and not self.shutdown.reason:
            log.error("Disconnected: finishing the jobs that run here", code=refused.code, detail=refused.detail)
            self.shutdown.start(refused.code)
