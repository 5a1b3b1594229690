"""The agent in your own program: a worker with its handlers, or only heartbeats."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from controlplane.agent.api.client import AgentClient, Refused
from controlplane.agent.api.heartbeat_thread import HeartbeatThread, HeldAttempts
from controlplane.agent.api.leftovers import state_folder
from controlplane.agent.api.registration import RegisteredServer, register_server
from controlplane.agent.fence import Fence
from controlplane.agent.from_code import handlers
from controlplane.agent.from_code.handlers import path_of
from controlplane.agent.processes import environment

if TYPE_CHECKING:
    from controlplane.agent.proofs.guard import DeathGuard
    from controlplane.agent.proofs.successor import Successor

log = structlog.get_logger()
LAST_ANSWERS_TIMEOUT = 3.0  # seconds
WATCH_INTERVAL = 1.0  # seconds between two looks at the sentinel


class Worker:
    """A worker in your own program.

    It runs `handlers` (default: all functions that `@handler` has registered) and the other kinds of actions in
    `allow`. `options` are those of the command line: `concurrency=4`, `async_=50`, `task_timeout=60`. The
    address and the token default to CONTROLPLANE_URL and CONTROLPLANE_TOKEN. `probe` is a shell command, or a function
    of a module. It fails if it raises or returns False: then the machine is not fit for work.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        name: str | None = None,
        tags: Iterable[str] = (),
        handlers: Mapping[str, Callable[..., Any]] | None = None,
        allow: Iterable[str] = (),
        probe: str | Callable[[], Any] | None = None,
        **options: Any,
    ) -> None:
        self._token, self._handlers = token, handlers
        path = path_of(probe, "probe") if callable(probe) else probe
        given = {"url": url, "name": name, "tags": ",".join(tags), "probe": path, **options}
        self._arguments = [
            f"--{key.rstrip('_').replace('_', '-')}={value}" for key, value in given.items() if value not in (None, "")
        ]
        self._allow = list(allow)

    def run(self) -> int:
        """Run on the main thread until SIGTERM or SIGINT. Return the exit status of the agent."""
        from controlplane.agent.__main__ import main

        functions = handlers.REGISTERED if self._handlers is None else self._handlers
        allow = [*self._allow, *(["handler"] if functions else [])]
        definitions = [handlers.definition_of(name, function) for name, function in functions.items()]
        if self._token:
            os.environ[environment.TOKEN] = self._token
        if folder := handlers.folder_of_main():
            paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
            os.environ["PYTHONPATH"] = os.pathsep.join([folder, *paths])
        allowed = [f"--allow={','.join(allow)}"] if allow else []
        return main([*self._arguments, *allowed, *(f"--handler={text}" for text in definitions)])


class Heart:
    """Send heartbeats for this process while the block runs: `with Heart(url, name="nightly"): …`.

    It has its own thread and never blocks. It retries while the control plane does not answer. If the control plane has
    declared this server dead or deleted it, it registers again, because this process is alive.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        name: str,
        token: str | None = None,
        type: str = "EXECUTOR",
        metrics: Callable[[], dict[str, Any]] = dict,
        work_ends_with_process: bool = False,
        **description: Any,
    ) -> None:
        """`work_ends_with_process`: no other process continues the work of this one. Then a sentinel may
        report its end at once (Linux), or the next such process if the sentinel was killed too. Otherwise the timeout
        decides.
        """
        self._client = AgentClient(url or os.environ["CONTROLPLANE_URL"])
        self._token = token or os.environ[environment.TOKEN]
        self._description = {"type": type, "name": name, "hostname": socket.gethostname(), "pid": os.getpid()}
        self._description |= description
        self._metrics, self._work_ends_with_process = metrics, work_ends_with_process
        self._is_over = threading.Event()
        self._changed = threading.Event()
        self._beats: HeartbeatThread | None = None
        self._thread = threading.Thread(target=self._run, name="heart-of-process", daemon=True)

    def __enter__(self) -> Heart:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Send a last heartbeat, and wait a few seconds for its response."""
        self._is_over.set()
        self._changed.set()
        self._thread.join(LAST_ANSWERS_TIMEOUT)

    def _run(self) -> None:
        while not self._is_over.is_set():
            try:
                server = register_server(
                    self._client, lambda: self._token, self._description, self._pause, was_known=True
                )
            except _Over:
                break
            except Refused as refused:
                log.error("Not registered", status=refused.status, code=refused.code, detail=refused.detail)
                break
            self._changed.clear()
            self._beat(server)
        self._client.close()

    def _beat(self, server: RegisteredServer) -> None:
        """Send heartbeats until the block ends, or the control plane no longer knows this server."""
        self._beats = HeartbeatThread(
            server, Fence(), list_held_attempts=HeldAttempts, metrics=self._metrics, on_answer=self._record_answer,
            on_fenced=lambda: None,
        )  # fmt: skip
        guard = self._begin_guard(server) if self._work_ends_with_process else None
        self._beats.start()
        successor = self._report_earlier(server) if guard else None
        while not (self._is_over.is_set() or self._changed.is_set()):
            self._changed.wait(WATCH_INTERVAL if guard else None)
            if guard:
                guard.watch()
        self._beats.stop()
        self._beats.join(LAST_ANSWERS_TIMEOUT)
        is_end_known = self._send_last_heartbeat(server) if self._is_over.is_set() else True
        if successor:
            successor.close()
        if guard:
            guard.close(is_end_known=is_end_known)

    @property
    def _state(self) -> Path:
        return state_folder(os.environ.get("CONTROLPLANE_STATE_DIR"), str(self._description["name"]))

    def _begin_guard(self, server: RegisteredServer) -> DeathGuard | None:
        from controlplane.agent.proofs.guard import DeathGuard

        return DeathGuard.begin(server, self._state, environment.for_jobs(os.environ))

    def _report_earlier(self, server: RegisteredServer) -> Successor:
        """Report earlier servers of this machine that died with their sentinel, in a thread."""
        from controlplane.agent.proofs.successor import Successor

        successor = Successor(self._state, self._client, lambda: self._token, lambda: self._description)
        successor.begin(server.config.timeout + server.config.termination_grace_period)
        return successor

    def _send_last_heartbeat(self, server: RegisteredServer) -> bool:
        """Return True if the control plane knows that this server ended."""
        self._client.timeout = LAST_ANSWERS_TIMEOUT / 2
        try:
            return server.send_last_heartbeat("TERMINATED_GRACEFULLY", time.monotonic())
        except Refused as refused:
            log.warning("Last heartbeat refused", code=refused.code, detail=refused.detail)
            return True

    def _record_answer(self, answer: dict[str, Any] | Refused) -> None:
        if isinstance(answer, Refused) and answer.code in ("server_unknown", "server_not_running"):
            self._changed.set()

    def _pause(self, seconds: float) -> None:
        if self._is_over.wait(seconds):
            raise _Over


class _Over(BaseException):
    """The block ended before the registration."""
