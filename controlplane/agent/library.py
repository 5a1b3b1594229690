"""The agent in a program of one's own: a worker with its handlers, or only a heart."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import structlog

from controlplane.agent import environment, handlers
from controlplane.agent.client import Client, Refused
from controlplane.agent.fence import Fence
from controlplane.agent.handlers import path_of
from controlplane.agent.heart import HeartbeatThread, HeldAttempts
from controlplane.agent.registration import RegisteredServer, register_server

log = structlog.get_logger()
LAST_WORDS = 3.0  # seconds


class Worker:
    """A worker that runs `handlers` (by default all that `@handler` has registered) and what else `allow` names.

    `options` are those of the command line: `concurrency=4`, `memory_limit="2G"`, `task_timeout=60`. The address and
    the token may be in CONTROLPLANE_URL and CONTROLPLANE_TOKEN. `probe`: a shell command, or a function of a module
    that raises, or returns False, while this machine is not fit for work.
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
            f"--{key.replace('_', '-')}={value}" for key, value in given.items() if value not in (None, "")
        ]
        self._allow = list(allow)

    def run(self) -> int:
        """Until SIGTERM or SIGINT, on the main thread; the exit status of the agent."""
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
    """Has this process seen for as long as the block runs: `with Heart(url, name="nightly"): …`.

    It beats in a thread of its own and waits for nothing; while nobody answers it goes on to try. One that was
    declared dead, or purged, is registered anew, for it lives.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        name: str,
        token: str | None = None,
        type: str = "EXECUTOR",
        metrics: Callable[[], dict[str, Any]] = dict,
        **description: Any,
    ) -> None:
        self._client = Client(url or os.environ["CONTROLPLANE_URL"])
        self._token = token or os.environ[environment.TOKEN]
        self._description = {"type": type, "name": name, "hostname": socket.gethostname(), "pid": os.getpid()}
        self._description |= description
        self._metrics = metrics
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
        """Say that this process ends, if that is heard within a few seconds."""
        self._is_over.set()
        self._changed.set()
        self._thread.join(LAST_WORDS)

    def _run(self) -> None:
        while not self._is_over.is_set():
            try:
                server = register_server(self._client, self._token, self._description, self._pause)
            except _Over:
                break
            except Refused as refused:
                log.error("Not registered", status=refused.status, code=refused.code, detail=refused.detail)
                break
            self._changed.clear()
            self._beat(server)
        self._client.close()

    def _beat(self, server: RegisteredServer) -> None:
        """Until the block is left, or the server is no more."""
        self._beats = HeartbeatThread(
            server, Fence(), list_held_attempts=HeldAttempts, metrics=self._metrics, on_answer=self._record_answer,
            on_fenced=lambda: None,
        )  # fmt: skip
        self._beats.start()
        while not (self._is_over.is_set() or self._changed.is_set()):
            self._changed.wait()
        self._beats.stop()
        self._beats.join(LAST_WORDS)
        if self._is_over.is_set():
            self._client.timeout = LAST_WORDS / 2
            try:
                server.send_last_heartbeat("TERMINATED_GRACEFULLY", time.monotonic())
            except Refused as refused:
                log.warning("Last heartbeat refused", code=refused.code, detail=refused.detail)

    def _record_answer(self, answer: dict[str, Any] | Refused) -> None:
        if isinstance(answer, Refused) and (answer.status == 410 or answer.code == "server_not_running"):
            self._changed.set()

    def _pause(self, seconds: float) -> None:
        if self._is_over.wait(seconds):
            raise _Over


class _Over(BaseException):
    """The block was left before there was a server."""
