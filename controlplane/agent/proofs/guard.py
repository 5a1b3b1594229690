"""Preparation of an agent for a proof of its death: its file, and the sentinel process beside it."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import structlog

from controlplane.agent.api.registration import RegisteredServer
from controlplane.agent.processes import host
from controlplane.agent.processes.environment import with_modules
from controlplane.agent.processes.server_file import ServerFile, servers_folder

log = structlog.get_logger()
LAST_WAIT = 1.0  # seconds for the sentinel of an agent that ends by itself


class DeathGuard:
    """The file of a server and its sentinel. Main thread only."""

    def __init__(self, server: RegisteredServer, file: ServerFile, state: Path, environment: dict[str, str]) -> None:
        self._server, self.file, self._state, self._environment = server, file, state, environment
        self._sentinel: subprocess.Popen[bytes] | None = None
        self._told_token = ""
        self.watch()

    @classmethod
    def begin(cls, server: RegisteredServer, state: Path, environment: dict[str, str]) -> DeathGuard | None:
        """Return the guard of a server, or None if a death of it could not be proved.

        `state` is the state folder of the agent. `environment` is the sentinel's; code of the same user may read it.
        """
        if problem := host.read_problem():
            log.info("A death of this agent cannot be proved: its jobs would wait for the timeout", why=problem)
            return None
        folder = servers_folder(state)
        try:
            file = ServerFile.create(
                folder, server.id, server.instance_id, server.client.base, server.registration_token
            )
        except OSError as error:
            log.warning(
                "A death of this agent cannot be proved: its jobs would wait for the timeout",
                folder=str(folder), why=str(error),
            )  # fmt: skip
            return None
        return cls(server, file, state, environment)

    @property
    def pids(self) -> set[int]:
        return {self._sentinel.pid} if self._sentinel else set()

    def watch(self) -> None:
        """Start the sentinel if it does not run, and hand it the token of the server when that has changed."""
        if self._sentinel is not None and self._sentinel.poll() is not None:
            self._sentinel = None
        if self._sentinel is None:
            self._start()
        elif self._told_token != self._server.present_token:
            self._tell(token=self._server.present_token)

    def close(self, *, is_end_known: bool) -> None:
        """End the guard with its agent. `is_end_known`: the control plane knows the end, so no report is needed."""
        if self._sentinel is not None:
            if is_end_known:
                self._tell(is_over=True)
            if self._sentinel.stdin:
                with contextlib.suppress(OSError):
                    self._sentinel.stdin.close()
        self.file.close(is_end_known=is_end_known)
        if self._sentinel is not None and is_end_known:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._sentinel.wait(LAST_WAIT)

    def _start(self) -> None:
        try:
            self._sentinel = subprocess.Popen(
                [sys.executable, "-P", "-m", "controlplane.agent.proofs.sentinel"],
                env=with_modules(self._environment),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            log.warning("The sentinel of this agent could not be started; a successor reports a death", why=str(error))
            return
        config = self._server.config
        self._tell(
            file=str(self.file.path),
            server=self._server.id,
            token=self._server.present_token,
            url=self._server.client.base,
            config=asdict(config),
            state=str(self._state.parent),
            patience=config.timeout + config.termination_grace_period,
        )

    def _tell(self, **facts: object) -> None:
        if token := facts.get("token"):
            self._told_token = str(token)
        if self._sentinel and self._sentinel.stdin:
            with contextlib.suppress(OSError):
                self._sentinel.stdin.write(json.dumps(facts).encode() + b"\n")
                self._sentinel.stdin.flush()
