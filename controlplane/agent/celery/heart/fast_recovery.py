"""Fast recovery of Celery workers: the heart reports earlier workers that died together with their hearts.

A heart reports the death of its own worker. If the heart dies too, the heart of the next worker proves both deaths, by
a lock on the file of the dead worker.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import structlog

from controlplane.agent.api.client import AgentClient
from controlplane.agent.api.registration import RegisteredServer
from controlplane.agent.celery.messages import Greeting
from controlplane.agent.celery.options import INSTANCE_VARIABLE
from controlplane.agent.processes.server_file import ServerFile, name_of, servers_folder
from controlplane.agent.proofs.successor import Successor

log = structlog.get_logger()
WATCHED_FOR = 600.0  # seconds; longer than tasks of a lost worker wait with the default settings


class HeartRecovery:
    """Fast recovery in one heart. `ended` is called with the instance of each server whose death is proved."""

    def __init__(self, greeting: Greeting, main: int, ended: Callable[[str], None]) -> None:
        self._greeting = greeting
        self._state = Path(greeting.state) if greeting.state else None
        self._file: ServerFile | None = None
        self._successor: Successor | None = None
        if self._state:
            client = AgentClient(greeting.url)
            # A worker that restarted itself under the same process id (execv) still has the mark of its earlier
            # instance.
            self._successor = Successor(
                self._state, client, lambda: greeting.token, lambda: greeting.description, spare={main}, proved=ended
            )

    def begin(self) -> None:
        """Start a thread that reports dead earlier workers of this machine or container."""
        if self._successor:
            self._successor.begin(WATCHED_FOR)

    def metrics(self) -> dict[str, int]:
        """Return the number of dead servers that this heart found, by result."""
        return self._successor.metrics() if self._successor else {}

    def name_file(self, server: RegisteredServer) -> None:
        """Name the worker's file after its server. From then on, the death of the worker can be proved."""
        greeting = self._greeting
        if self._state is None or greeting.lock is None:
            return
        before = self._file
        try:
            self._file = ServerFile.publish(
                servers_folder(self._state), greeting.lock, server.id, server.instance_id, server.client.base,
                server.registration_token, ends_namespace=greeting.ends_namespace,
                marker={"began": greeting.began, "mark": f"{INSTANCE_VARIABLE}={greeting.instance}"},
            )  # fmt: skip
        except OSError as error:
            self._file = None
            log.warning(
                "A death of this worker cannot be proved: its tasks would wait for the timeout",
                folder=str(servers_folder(self._state)), why=str(error),
            )  # fmt: skip
        if before and (self._file is None or before.path != self._file.path):
            before.remove_markers()

    def forget_code(self) -> None:
        """Record that no code of the worker runs any more."""
        if self._file:
            self._file.remove_markers()

    def close(self, *, is_end_known: bool) -> None:
        """End together with the heart.

        `is_end_known` means that the control plane knows the end of the worker, so its file is deleted.
        """
        if self._successor:
            self._successor.close()
        if self._file:
            self._file.close(is_end_known=is_end_known)
        elif self._greeting.lock is not None:
            with suppress(OSError):
                os.unlink(name_of(self._greeting.lock))
